"""The account that the embedded server runs as.

PostgreSQL refuses to run as root, so a root user's server runs as the account `nuncius`, which is
created if it is missing. A normal user's server runs as that user.

The server's account must be able to reach its data and programs through directories that may be
closed to it (`/root` is the usual case). They are not opened to all accounts: each gets one
access-control entry that lets this one account pass through, not list or read. Only if a file
system knows no such entries, "search" is granted to all.
"""

import errno
import logging
import os
import pwd
import shutil
import stat
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from nuncius.store.errors import DataDirectoryError, ServerStartError

NAME = "nuncius"
_log = logging.getLogger(__name__)

_ACL = "system.posix_acl_access"
_ACL_VERSION = struct.pack("<I", 2)
_USER_OBJ, _USER, _GROUP_OBJ, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
_SEARCH = 0x01
_NO_ID = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Account:
    """A Unix account the server runs as."""

    uid: int
    gid: int

    @property
    def is_another(self) -> bool:
        """Return True if this is not the account of this process."""
        return self.uid != os.geteuid()

    def run(
        self,
        command: list[str],
        *,
        stderr: IO[bytes] | int = subprocess.PIPE,
        new_session: bool = False,
        pass_fds: Sequence[int] = (),
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as this account and wait for it. Its output is captured."""
        become: dict[str, Any] = {}
        if self.is_another:
            become = {"user": self.uid, "group": self.gid, "extra_groups": []}
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            check=False,
            cwd="/",
            env=_environment(),
            start_new_session=new_session,
            pass_fds=pass_fds,
            **become,
        )

    def can(self, test: str, path: Path) -> bool:
        """Return True if this account passes `test` (`-x`, `-r`, ...) on a path."""
        command = ["/bin/sh", "-c", 'test "$1" "$2"', "sh", test, str(path)]
        return self.run(command).returncode == 0

    def own(self, path: Path) -> None:
        """Make this account the owner of a file or directory."""
        if self.is_another:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def choose(cluster: Path) -> Account:
    """Return the account for a cluster: its owner, this process's account, or for root the system account."""
    if cluster.is_dir():
        owner = cluster.stat()
        if owner.st_uid != 0 and os.geteuid() in {0, owner.st_uid}:
            return Account(owner.st_uid, owner.st_gid)
        raise DataDirectoryError(
            f"{cluster} belongs to user {owner.st_uid}: "
            "start as that user or as root, or choose another data directory"
        )
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    entry = _find_entry() or _make_entry()
    return Account(entry.pw_uid, entry.pw_gid)


def named() -> list[str]:
    """Return the prefix for a command that needs its user to have a name, as `initdb` does.

    It is empty for most users. Container platforms assign user ids without an entry in /etc/passwd: such a
    user appears as another one in a user namespace, if the system allows that.
    """
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        pass
    else:
        return []
    unshare = shutil.which("unshare")
    other = next((entry for entry in pwd.getpwall() if entry.pw_uid != 0), None)
    if unshare is not None and other is not None:
        begin = [unshare, f"--map-user={other.pw_uid}", f"--map-group={other.pw_gid}", "--"]
        if subprocess.run([*begin, "true"], capture_output=True, check=False).returncode == 0:
            return begin
    raise ServerStartError(
        f"PostgreSQL cannot make its data as user {os.geteuid()}, who has no name on this system: add "
        f"'nuncius:x:{os.geteuid()}:{os.getegid()}::/:/bin/false' to /etc/passwd, start as another user, "
        "or use --store DSN"
    )


def ours() -> set[int]:
    """Return the accounts whose files are ours: this process's and, for root, the server's."""
    entry = _find_entry() if os.geteuid() == 0 else None
    return {os.geteuid()} | ({entry.pw_uid} if entry is not None else set())


def let_through(account: Account, path: Path) -> None:
    """Let the account reach `path`. Open no more directories than necessary."""
    if not account.is_another or account.can("-x", path):
        return
    for directory in reversed(path.resolve().parents):
        if not account.can("-x", directory):
            _grant_search(account, directory)


def let_use(account: Account, programs: Path) -> None:
    """Let the account run the programs of a wheel that was installed with a strict umask."""
    let_through(account, programs / "bin")
    if not account.is_another or account.can("-x", programs / "bin" / "postgres"):
        return
    for folder in (programs, *programs.parent.parent.glob(f"{programs.parent.name}.libs")):
        for path in (folder, *folder.rglob("*")):
            mode = path.stat().st_mode
            wanted = stat.S_IROTH | (stat.S_IXOTH if mode & stat.S_IXUSR else 0)
            path.chmod(mode | wanted)
    let_through(account, programs / "bin")


def _environment() -> dict[str, str]:
    """Return the environment without PG*, because a user's PGDATA or PGPORT must not reach our server, and
    without NUNCIUS_*, because the server's account could read a password there."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "NUNCIUS_"))}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}


def _find_entry() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(NAME)
    except KeyError:
        return None


def _make_entry() -> pwd.struct_passwd:
    useradd = shutil.which("useradd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if useradd is not None:
        command = [useradd, "--system", "--user-group", "--no-create-home"]
        command += ["--home-dir", "/", "--shell", "/bin/false", NAME]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        entry = _find_entry()  # another process may have made it meanwhile
        if entry is not None:
            _log.warning(
                "made a system account for PostgreSQL, which does not run as root", extra={"account": NAME}
            )
            return entry
        reason = made.stderr.strip()
    else:
        reason = "there is no useradd"
    raise ServerStartError(
        f"PostgreSQL does not run as root, and the system account {NAME!r} could not be made "
        f"({reason}): make it by hand, start as a normal user, or use --store DSN"
    )


def _grant_search(account: Account, directory: Path) -> None:
    mode = directory.stat().st_mode
    try:
        acl = os.getxattr(directory, _ACL)
    except OSError as error:
        if error.errno != errno.ENODATA:
            _open_to_all(directory, mode)
            return
        acl = _acl_of_mode(mode)
    try:
        os.setxattr(directory, _ACL, _with_search(acl, account.uid))
    except OSError:
        _open_to_all(directory, mode)


def _open_to_all(directory: Path, mode: int) -> None:
    _log.warning("opened %s for passing through: the server's account must get by", directory)
    directory.chmod(stat.S_IMODE(mode) | stat.S_IXOTH)


def _acl_of_mode(mode: int) -> bytes:
    entries = ((_USER_OBJ, mode >> 6 & 7), (_GROUP_OBJ, mode >> 3 & 7), (_OTHER, mode & 7))
    return _ACL_VERSION + b"".join(struct.pack("<HHI", tag, perm, _NO_ID) for tag, perm in entries)


def _with_search(acl: bytes, uid: int) -> bytes:
    """Return the list with one more account that may pass. The mask must allow that, too."""
    entries = [e for e in struct.iter_unpack("<HHI", acl[4:]) if (e[0], e[2]) != (_USER, uid)]
    group = next(perm for tag, perm, _ in entries if tag == _GROUP_OBJ)
    mask = next((perm for tag, perm, _ in entries if tag == _MASK), group)
    kept = [entry for entry in entries if entry[0] != _MASK]
    kept += [(_USER, _SEARCH, uid), (_MASK, mask | _SEARCH, _NO_ID)]
    kept.sort(key=lambda entry: (entry[0], entry[2]))  # the kernel wants them in this order
    return _ACL_VERSION + b"".join(struct.pack("<HHI", *entry) for entry in kept)
