"""The icon in the browser's tab: an envelope with a moon."""

SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">'
    '<rect width="32" height="32" rx="7" fill="#2b5d8a"/>'
    '<path d="M6 11h20v12H6z M6 11l10 7 10-7" fill="none" stroke="#fff" stroke-width="2"/>'
    '<circle cx="25" cy="8" r="4" fill="#f2c14e"/></svg>'
)
