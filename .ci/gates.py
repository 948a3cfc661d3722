"""Read the project's Python files, name what must not be in them: unsafe loading, size, places.

In: a folder. Out: one line a finding, and exit status 1 where there is any. Reads syntax trees
and text only; knows nothing of what the code does.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
UNSAFE_MODULES = frozenset(
    {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
)
UNSAFE_BUILTINS = frozenset({"eval", "exec"})
UNSAFE_CALLS = frozenset(
    {"torch.load", "pd.read_pickle", "pandas.read_pickle", "yaml.load", "os.system"}
)
CODE_FLAGS = frozenset({"trust_remote_code", "allow_pickle", "shell"})

# Split, so that this file does not hold what it looks for.
_HOSTS = [
    "py" + "pi.org",
    "python" + "hosted",
    "download.py" + "torch",
    "npm" + "js.org",
    "conda" + ".anaconda",
]
REGISTRY_HOST = re.compile("|".join(re.escape(host) for host in _HOSTS), re.IGNORECASE)
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|home|Users)/[A-Za-z._]\w*")


@dataclass(frozen=True, slots=True)
class Finding:
    """One place that breaks a rule."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def packages(root: Path) -> list[str]:
    """Name the packages that pyproject.toml ships."""
    with (root / "pyproject.toml").open("rb") as file:
        listed = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return [str(name) for name in listed]


def python_files(root: Path, folders: list[str]) -> list[Path]:
    """List the Python files under some of a project's folders, in a fixed order."""
    return sorted(path for folder in folders for path in (root / folder).rglob("*.py"))


def unsafe(source: str, path: str) -> list[Finding]:
    """Find what can run code that came as data: unpickling, eval, remote code flags, a shell."""
    found = []
    for node in ast.walk(ast.parse(source, path)):
        message = _unsafe_import(node) or _unsafe_call(node)
        if message:
            found.append(Finding(path, getattr(node, "lineno", 0), message))
    return found


def _unsafe_import(node: ast.AST) -> str | None:
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    for name in names:
        if name.split(".")[0] in UNSAFE_MODULES or name in UNSAFE_CALLS:
            return f"imports {name}, which can run code that comes as data"
    return None


def _unsafe_call(node: ast.AST) -> str | None:
    if not isinstance(node, ast.Call):
        return None
    name = ast.unparse(node.func)
    if name in UNSAFE_CALLS or name in UNSAFE_BUILTINS or name.startswith("builtins."):
        return f"calls {name}, which can run code that comes as data"
    for keyword in node.keywords:
        if keyword.arg in CODE_FLAGS and not _is_off(keyword.value):
            return f"passes {keyword.arg}={ast.unparse(keyword.value)}; only False is allowed"
    return None


def _is_off(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def too_large(source: str, path: str) -> list[Finding]:
    """Find a file or a function that has grown past reading at one go."""
    found = []
    num_lines = source.count("\n")
    if num_lines > MAX_FILE_LINES:
        found.append(Finding(path, 1, f"{num_lines} lines; split it at {MAX_FILE_LINES}"))
    for node in ast.walk(ast.parse(source, path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                message = f"{node.name} has {length} lines; split it at {MAX_FUNCTION_LINES}"
                found.append(Finding(path, node.lineno, message))
    return found


def named_places(text: str, path: str) -> list[Finding]:
    """Find a package registry's host name or a path that only one machine has."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        for pattern, what in (
            (REGISTRY_HOST, "a registry's host"),
            (MACHINE_PATH, "a machine's path"),
        ):
            if match := pattern.search(line):
                found.append(Finding(path, number, f"names {what}: {match[0]!r}"))
    return found


def tracked_texts(root: Path) -> Iterator[tuple[str, str]]:
    """Give (path, text) of each file that the repository keeps and that is UTF-8."""
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=root,
        capture_output=True,
        check=True,
    )
    for name in sorted(listing.stdout.decode().split("\0")):
        path = root / name
        if not name or not path.is_file():
            continue
        try:
            yield name, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def check(root: Path) -> list[Finding]:
    """Give every finding of every gate for the project in `root`."""
    found: list[Finding] = []
    shipped = packages(root)
    for path in python_files(root, shipped):
        found += unsafe(path.read_text(encoding="utf-8"), str(path.relative_to(root)))
    for path in python_files(root, [*shipped, "benchmarks", "docs", ".ci"]):
        found += too_large(path.read_text(encoding="utf-8"), str(path.relative_to(root)))
    for name, text in tracked_texts(root):
        found += named_places(text, name)
    return found


def main(root: Path) -> int:
    """Print the findings; give 1 where there are any."""
    found = check(root)
    for finding in found:
        print(finding)
    print(f"gates: {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]))
