// Keyboard shortcuts and the theme, handled in the browser so that no key press is lost on the way.
(() => {
  const pages = PAGES;
  window.turnColours = () => {
    const dark = document.body.classList.contains("body--dark");
    document.cookie = `THEME=${dark ? "light" : "dark"};path=/console;max-age=31536000;samesite=lax`;
    Quasar.Dark.set(!dark);
  };
  // Make the headings of sortable columns focusable and pressable, like buttons.
  new MutationObserver(() => {
    for (const head of document.querySelectorAll("th.sortable:not([tabindex])")) head.tabIndex = 0;
  }).observe(document.documentElement, { childList: true, subtree: true });
  document.addEventListener("keydown", (event) => {
    if ((event.key === "Enter" || event.key === " ") && event.target.matches?.("th.sortable")) {
      event.preventDefault();
      event.target.click();
    }
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    const asked = document.querySelector(".q-dialog");
    if (typing || asked || event.ctrlKey || event.altKey || event.metaKey || event.repeat) return;
    const search = document.querySelector(".search input");
    if (event.key === "/" && search) {
      event.preventDefault();
      search.focus();
    } else if (event.key === "t") {
      window.turnColours();
    } else if (event.key === "?") {
      document.querySelector(".keys-button")?.click();
    } else if (/^[1-9]$/.test(event.key) && event.key <= pages.length) {
      location.href = pages[event.key - 1];
    }
  });
})();
