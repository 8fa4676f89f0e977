#!/usr/bin/env python3
"""Measure how guessable a tree of Python code is; print the table of docs/ARCHITECTURE.md.

    scripts/house.py                     the table over src/marey, in Markdown
    scripts/house.py --packages          the same figures per package
    scripts/house.py --list parameters   every place behind one figure
    scripts/house.py path/to/other/code  the same figures of another code base

Rules of counting:

- Methods named ``__like_this__`` and properties are not functions here: a property is a value.
- Functions under Numba's ``njit`` may take as many parameters as they need (a compiled kernel takes
  arrays, not objects), and calls of them as many arguments; so may calls into the native module
  and calls of functions that take any number of like things (``has("util", "power", …)``).
- A package is a folder directly below the root; its module names must be unique in it. Public
  class names must be unique in a layer: packages that stand side by side in ``pyproject.toml``.
- ``getattr`` with a literal name asks an object for something its type does not promise. The part
  that runs inside somebody else's program (``record``) may ask.
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent / "src" / "marey"
OPENAPI = ROOT.parents[1] / "docs" / "openapi.json"
SETTINGS = ROOT.parents[1] / "pyproject.toml"
MOST_PARAMETERS = 4
MOST_POSITIONAL_ARGUMENTS = 5
MOST_MODULES_IN_A_FOLDER = 15
PARTS_THAT_MAY_PROBE = frozenset({"record"})
NATIVE_MODULES = frozenset({"native", "_native", "module"})

# Common verbs in alphabetical order. Words that are as often nouns (state, sample, index, name,
# order, rank, rate, step, trace …) are left out, so that the share errs on the strict side.
VERBS = frozenset(
    """
    accept acquire add adjust advance aggregate align allocate allow analyse analyze answer
    append apply ask assemble assert assign attach await begin bind broadcast build calculate
    call cancel cast change check choose classify clean clear clip clone close collapse
    collect combine commit compact compare compile compress compute concatenate configure
    confirm connect consume convert copy count create decide declare decode decompress
    deduplicate define delete deliver dequeue derive describe deserialize detach detect
    determine diagnose disable discard disconnect discover dispatch display divide do download
    downsample drain draw drop dump emit enable encode enforce enqueue ensure enter enumerate
    escape estimate evaluate evict exclude execute exit expand expect expire explain export
    extend extract fail feed fetch fill filter find finish fit fix flatten flush fold follow
    forget format forward freeze gather generate get give go group grow guess handle has hide
    hold identify ignore import include increment infer ingest init initialize insert inspect
    install interpolate interpret intersect invalidate invert invoke is iterate join keep kill
    launch leave limit list listen load locate lock log lookup maintain make map mark match
    measure merge migrate move narrow normalize notify observe open pack pad parse pass pause
    peek perform pick place plot poll pop populate predict prepare print process produce prune
    publish pull purge push put quantize quote raise read rebuild receive recompute reconnect
    record recover reduce refresh refuse register reject release reload remember remove rename
    render reopen repair repeat replace replay report request require reserve reset resize
    resolve respond restart restore resume retry return reverse rewrite round route run save
    scale scan schedule scrape search select send serialize serve set setup share shift show
    shrink shuffle shut simulate skip sleep sort spawn split start stop store strip submit
    subscribe subtract suggest summarize suppress swap switch synchronize take tell terminate
    test tick toggle touch track transfer transform translate traverse trim truncate try undo
    unlink unlock unpack unregister unsubscribe unwrap update upgrade upload use validate
    verify visit wait wake walk warm warn watch widen withdraw wrap write yield zip
    """.split()
)

IRREGULAR_PARTICIPLES = frozenset(
    """
    asked begun bought bound brought built caught chosen done drawn driven fallen felt found
    given gone grown heard held hidden kept known laid left lent lost made meant met paid
    risen said seen sent shown shrunk sold spent spoken stood sunk taken taught thought thrown
    told torn understood unknown unmet unseen untold won worn woven written
    """.split()
)
# Words that end like a participle and are none.
PLAIN_WORDS = frozenset(
    """
    bed bring building during embed exceed feed heading king missing need nothing ping proceed
    red ring seed setting shed sing something speed spring string succeed thing warning
    """.split()
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands, and what it is called."""

    path: Path
    line: int
    name: str

    @property
    def package(self) -> str:
        """Return the folder below the root that it belongs to."""
        return self.path.parts[0] if len(self.path.parts) > 1 else "(root)"

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.name}"


@dataclass(slots=True)
class Tree:
    """Everything that was measured about one tree of modules."""

    modules: dict[Path, int] = field(default_factory=dict)
    functions: list[Place] = field(default_factory=list)
    function_lines: list[tuple[Place, int]] = field(default_factory=list)
    kernels: set[str] = field(default_factory=set)
    variadic: set[str] = field(default_factory=lambda: {"attrgetter"})
    parameters: list[Place] = field(default_factory=list)
    positional: list[Place] = field(default_factory=list)
    probes: list[Place] = field(default_factory=list)
    delegations: list[Place] = field(default_factory=list)
    classes: list[Place] = field(default_factory=list)
    docstrings: list[tuple[Place, bool]] = field(default_factory=list)

    def narrow_to(self, package: str) -> Tree:
        """Return what of this tree lies in one package."""
        return Tree(
            modules={p: n for p, n in self.modules.items() if Place(p, 0, "").package == package},
            functions=_select(self.functions, package),
            function_lines=[(f, n) for f, n in self.function_lines if f.package == package],
            kernels=self.kernels,
            variadic=self.variadic,
            parameters=_select(self.parameters, package),
            positional=_select(self.positional, package),
            probes=_select(self.probes, package),
            delegations=_select(self.delegations, package),
            classes=_select(self.classes, package),
            docstrings=[(d, many) for d, many in self.docstrings if d.package == package],
        )


def read_tree(root: Path = ROOT) -> Tree:
    """Parse every module below a folder and note what the rules ask about."""
    tree = Tree()
    parsed: list[tuple[Path, list[ast.AST]]] = []
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree.modules[path.relative_to(root)] = text.count("\n")
        parsed.append((path.relative_to(root), list(ast.walk(ast.parse(text)))))
    for path, nodes in parsed:
        functions = list(_find_functions(nodes))
        tree.kernels |= {n.name for n in functions if _is_kernel(n)}
        tree.variadic |= {n.name for n in functions if n.args.vararg is not None}
        _note_definitions(tree, path, nodes)
    for path, nodes in parsed:
        _note_calls(tree, path, nodes)
    return tree


def _note_definitions(tree: Tree, path: Path, nodes: list[ast.AST]) -> None:
    """Note the functions, classes and docstrings of one module."""
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            tree.docstrings += _read_docstring(path, node)
            if not node.name.startswith("_"):
                tree.classes.append(Place(path, node.lineno, node.name))
    for function in _find_functions(nodes):
        place = Place(path, function.lineno, function.name)
        tree.docstrings += _read_docstring(path, function)
        tree.function_lines.append((place, _count_lines(function)))
        if not function.name.startswith("__") and not _is_property(function):
            tree.functions.append(place)
        if function.name == "__getattr__":
            tree.delegations.append(place)
        if not _is_kernel(function) and _count_parameters(function) > MOST_PARAMETERS:
            tree.parameters.append(place)


def _note_calls(tree: Tree, path: Path, nodes: list[ast.AST]) -> None:
    """Note calls with many positional arguments, and ``getattr`` with a literal name."""
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        name = _name_callee(node)
        plain = [a for a in node.args if not isinstance(a, ast.Starred)]
        if len(plain) > MOST_POSITIONAL_ARGUMENTS and not _takes_any_number(tree, node, name):
            tree.positional.append(Place(path, node.lineno, name))
        if name == "getattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            place = Place(path, node.lineno, f"getattr(…, {node.args[1].value!r})")
            if place.package not in PARTS_THAT_MAY_PROBE:
                tree.probes.append(place)


Function = ast.FunctionDef | ast.AsyncFunctionDef


def _find_functions(nodes: Iterable[ast.AST]) -> Iterator[Function]:
    """Yield every function and method of a module."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _name_decorators(function: Function) -> set[str]:
    """Return the last word of each decorator: ``njit`` of ``@numba.njit(cache=True)``."""
    names = set()
    for node in function.decorator_list:
        inner = node.func if isinstance(node, ast.Call) else node
        names.add(inner.attr if isinstance(inner, ast.Attribute) else getattr(inner, "id", ""))
    return names


def _is_kernel(function: Function) -> bool:
    return "njit" in _name_decorators(function)


def _is_property(function: Function) -> bool:
    return bool(_name_decorators(function) & {"property", "cached_property", "setter"})


def _count_parameters(function: Function) -> int:
    """Count what a caller may pass by position, without ``self`` or ``cls``."""
    names = [a.arg for a in function.args.posonlyargs + function.args.args]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def _count_lines(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def _name_callee(call: ast.Call) -> str:
    """Return the last word of what is called."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _takes_any_number(tree: Tree, call: ast.Call, name: str) -> bool:
    """Say whether a call goes into compiled code, or to a function of any number of arguments."""
    if name in tree.kernels or name in tree.variadic:
        return True
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id in NATIVE_MODULES


def _read_docstring(path: Path, node: Function | ast.ClassDef) -> list[tuple[Place, bool]]:
    """Return the place of a docstring and whether it has several lines; nothing without one."""
    text = ast.get_docstring(node)
    return [] if text is None else [(Place(path, node.lineno, node.name), "\n" in text)]


def _select(places: list[Place], package: str) -> list[Place]:
    return [place for place in places if place.package == package]


def get_first_word(name: str) -> str:
    """Return the first word of a name: ``_read_rows`` and ``ReadRows`` begin with ``read``."""
    return name.strip("_").split("_")[0].lower()


def is_verb_first(name: str) -> bool:
    """Say whether a function's name begins with one of the common verbs."""
    return get_first_word(name) in VERBS


def is_participle_first(name: str) -> bool:
    """Say whether a name begins with a participle, as ``kept_rows`` and ``sending`` do."""
    word = get_first_word(name)
    if word in IRREGULAR_PARTICIPLES:
        return True
    return len(word) > 4 and word.endswith(("ed", "ing")) and word not in PLAIN_WORDS


def find_duplicate_classes(tree: Tree) -> list[str]:
    """Name public classes that exist twice in one package."""
    return _name_duplicates((p.package, p.name, p.path) for p in tree.classes)


def read_layers(settings: Path = SETTINGS) -> list[list[str]]:
    """Return the packages of each layer, as import-linter reads them."""
    contracts = tomllib.loads(settings.read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(c["layers"] for c in contracts if c["name"] == "one-way layers")
    return [[name.strip() for name in layer.split("|")] for layer in layers]


def find_duplicate_classes_in_layers(tree: Tree, layers: Iterable[list[str]]) -> list[str]:
    """Name public classes that exist twice in one layer of packages."""
    layer_of = {package: " | ".join(layer) for layer in layers for package in layer}
    return _name_duplicates(
        (layer_of.get(place.package, place.package), place.name, place.path)
        for place in tree.classes
    )


def find_duplicate_modules(tree: Tree) -> list[str]:
    """Name modules that exist twice in one package."""
    named = [p for p in tree.modules if p.stem not in ("__init__", "__main__")]
    return _name_duplicates((Place(p, 0, "").package, p.stem, p) for p in named)


def _name_duplicates(named: Iterable[tuple[str, str, Path]]) -> list[str]:
    """Name what stands in more than one module of a package."""
    found: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for package, name, path in named:
        found[package, name].append(path)
    return [
        f"{package}: {name} in {', '.join(map(str, paths))}"
        for (package, name), paths in sorted(found.items())
        if len(paths) > 1
    ]


def count_modules_per_folder(tree: Tree) -> dict[str, int]:
    """Return how many modules, besides ``__init__``, lie in each folder."""
    counts: dict[str, int] = defaultdict(int)
    for path in tree.modules:
        counts[str(path.parent)] += path.stem != "__init__"
    return dict(counts)


def find_large_folders(tree: Tree) -> list[str]:
    """Name the folders with more modules than the limit."""
    counts = count_modules_per_folder(tree)
    return [f"{name}: {n}" for name, n in sorted(counts.items()) if n > MOST_MODULES_IN_A_FOLDER]


def compute_share(part: int, whole: int) -> float:
    """Return a share in percent, 0 of nothing."""
    return 100 * part / whole if whole else 0.0


def compute_verb_share(tree: Tree) -> float:
    """Return the share of functions that begin with a common verb, in percent."""
    return compute_share(sum(is_verb_first(f.name) for f in tree.functions), len(tree.functions))


def compute_participle_share(tree: Tree) -> float:
    """Return the share of functions that begin with a participle, in percent."""
    begun = sum(is_participle_first(f.name) for f in tree.functions)
    return compute_share(begun, len(tree.functions))


def compute_docstring_share(tree: Tree) -> float:
    """Return the share of docstrings with more than one line, in percent."""
    return compute_share(sum(many for _, many in tree.docstrings), len(tree.docstrings))


def compute_docstring_verb_share(root: Path = ROOT) -> float:
    """Return the share of functions' docstrings that begin with a common verb, in percent.

    Routes of the API are left out: their docstrings are the descriptions of the API's document.
    """
    words = [
        (ast.get_docstring(node) or "").split(maxsplit=1)
        for path in sorted(root.rglob("*.py"))
        if "routes" not in path.parts
        for node in _find_functions(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        if not node.name.startswith("__") and not _is_property(node)
    ]
    said = [word[0].strip("`.,:;").lower() for word in words if word]
    return compute_share(sum(word in VERBS for word in said), len(said))


def count_untyped_dictionaries(root: Path = ROOT) -> dict[str, int]:
    """Return how often ``dict[str, Any]`` stands in each module that has it."""
    counts = {
        str(path.relative_to(root)): path.read_text(encoding="utf-8").count("dict[str, Any]")
        for path in sorted(root.rglob("*.py"))
    }
    return {module: count for module, count in counts.items() if count}


def _show_spread(values: list[int]) -> str:
    """Return the median and the 95th percentile as ``7 / 25``."""
    if len(values) < 2:
        return "–"
    return f"{statistics.median(values):.0f} / {statistics.quantiles(values, n=20)[-1]:.0f}"


FIGURES: dict[str, Callable[[Tree], str]] = {
    "modules": lambda t: str(len(t.modules)),
    "module lines, median / p95": lambda t: _show_spread([n for n in t.modules.values() if n]),
    "function lines, median / p95": lambda t: _show_spread([n for _, n in t.function_lines]),
    "most modules in one folder": lambda t: str(max(count_modules_per_folder(t).values())),
    "folders past 15 modules": lambda t: str(len(find_large_folders(t))),
    "functions that begin with a common verb": lambda t: f"{compute_verb_share(t):.0f} %",
    "functions that begin with a participle": lambda t: f"{compute_participle_share(t):.1f} %",
    "public class names twice in a package": lambda t: str(len(find_duplicate_classes(t))),
    "module names twice in a package": lambda t: str(len(find_duplicate_modules(t))),
    "functions with more than 4 positional parameters": lambda t: str(len(t.parameters)),
    "calls with 6 or more positional arguments": lambda t: str(len(t.positional)),
    "`getattr` with a literal name": lambda t: str(len(t.probes)),
    "`__getattr__` delegations": lambda t: str(len(t.delegations)),
    "docstrings of several lines": lambda t: f"{compute_docstring_share(t):.0f} %",
}

LISTS: dict[str, Callable[[Tree], Iterable[object]]] = {
    "folders": find_large_folders,
    "nouns": lambda t: (f for f in t.functions if not is_verb_first(f.name)),
    "participles": lambda t: (f for f in t.functions if is_participle_first(f.name)),
    "classes": find_duplicate_classes,
    "layers": lambda t: find_duplicate_classes_in_layers(t, read_layers()),
    "modules": find_duplicate_modules,
    "parameters": lambda t: t.parameters,
    "positional": lambda t: t.positional,
    "getattr": lambda t: t.probes,
    "delegations": lambda t: t.delegations,
}


def find_json_answers(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the schema of every answer in JSON by method, path and status."""
    return {
        f"{method} {path} {status}": answer["content"]["application/json"].get("schema", {})
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        for status, answer in operation.get("responses", {}).items()
        if status.startswith("2") and "application/json" in answer.get("content", {})
    }


def is_typed(schema: dict[str, Any], components: dict[str, Any]) -> bool:
    """Say whether a schema states what it holds; ``{"type": "object"}`` alone does not."""
    if "$ref" in schema:
        return is_typed(components[schema["$ref"].rpartition("/")[2]], components)
    if "anyOf" in schema:
        return all(is_typed(one, components) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return is_typed(schema.get("items", {}), components)
    if schema.get("type") == "object":
        inside = schema.get("additionalProperties")
        return bool(schema.get("properties")) or (isinstance(inside, dict) and bool(inside))
    return "type" in schema or "const" in schema or "enum" in schema


def find_untyped_answers(document: dict[str, Any]) -> list[str]:
    """Name the answers of the API that do not state what they hold."""
    components = document["components"]["schemas"]
    answers = find_json_answers(document)
    return [name for name, schema in answers.items() if not is_typed(schema, components)]


def write_answers(document: dict[str, Any]) -> str:
    """Return the row of the table on the API's answers."""
    count = len(find_json_answers(document))
    return f"| typed API answers | {count - len(find_untyped_answers(document))} of {count} |"


def write_docstrings() -> str:
    """Return the row of the table on how the docstrings of functions begin."""
    share = compute_docstring_verb_share()
    return f"| docstrings of functions that begin with a verb | {share:.0f} % |"


def write_untyped_dictionaries() -> str:
    """Return the row of the table on dictionaries of which nothing is known, all at open edges."""
    return (
        f"| `dict[str, Any]`, at open edges only | {sum(count_untyped_dictionaries().values())} |"
    )


def write_layers(tree: Tree) -> str:
    """Return the row of the table on class names within a layer."""
    found = find_duplicate_classes_in_layers(tree, read_layers())
    return f"| public class names twice in a layer | {len(found)} |"


def write_table(columns: dict[str, Tree]) -> str:
    """Return the figures as a Markdown table, one column per tree."""
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, figure in FIGURES.items():
        lines.append(f"| {name} | " + " | ".join(figure(t) for t in columns.values()) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the table, or the list behind one figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("root", nargs="?", type=Path, default=ROOT)
    parser.add_argument("--packages", action="store_true", help="one column per package")
    parser.add_argument("--package", help="only this package")
    parser.add_argument("--list", choices=sorted(LISTS), help="print the places behind a figure")
    options = parser.parse_args()
    tree = read_tree(options.root)
    if options.package:
        tree = tree.narrow_to(options.package)
    if options.list:
        print(*LISTS[options.list](tree), sep="\n")
    elif options.packages:
        names = sorted({Place(p, 0, "").package for p in tree.modules} - {"(root)"})
        print(write_table({name: tree.narrow_to(name) for name in names}))
    else:
        print(write_table({options.root.name: tree}))
        if options.root == ROOT:
            print(write_docstrings())
            print(write_untyped_dictionaries())
            print(write_layers(tree))
            print(write_answers(json.loads(OPENAPI.read_text("utf-8"))))


if __name__ == "__main__":
    main()
