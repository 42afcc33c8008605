"""What each cell of the matrix must say, derived from the entries of its two libraries.

Responsible for the meaning of the traits in host.lua, cuda.lua and rocm.lua: `check` refuses an entry with a word that
has none, `expected` gives each word of a cell with the trait that it follows from. Invariant: nothing here names a
library or a pair of them. Must not know what a run has found (verdict.py), but for one thing that is chance: which
arrays an allocator put at an address that is no multiple of 64.
"""

from typing import NamedTuple

GROUPS = {
    "float8": (
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz"),
        *("float8_e3m4", "float8_e4m3", "float8_e8m0fnu"),
    ),
    "complex": ("complex64", "complex128"),
    "strided": ("sliced", "negative", "zero"),
}
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
DTYPES = ["bool", *INTEGERS, "float16", "bfloat16", "float32", "float64", *GROUPS["complex"], *GROUPS["float8"]]
LAYOUTS = ["c", "fortran", *GROUPS["strided"], "empty", "scalar", "rank 12"]
NEEDS_STRIDES = {"fortran", *GROUPS["strided"]}

# The words that a trait may be, by what it is a trait of. "refused" stands for "refused: TEXT", too. The plain layout,
# c, cannot be refused: a library that does not even exchange that has no place in the matrix.
KEPT = {"kept"}
WORDS = {
    "gives": {
        "dtype": KEPT | {"refused"},
        "layout": KEPT | {"refused", "compact"},
        "c": KEPT,
        "bool": KEPT | {"refused", "uint8"},
        "zero": KEPT | {"refused", "compact", "writable"},
        "readonly": KEPT | {"always"},
        "unaligned": KEPT | {"never"},
    },
    "takes": {
        "dtype": KEPT | {"refused", "copied", "unreadable"},
        "layout": KEPT | {"refused", "copied"},
        "c": KEPT | {"copied"},
        "everything": KEPT | {"copied"},
        "readonly": KEPT | {"refused", "lost"},
        "writable": KEPT | {"locked"},
        "unaligned": KEPT | {"refused", "copied"},
    },
}


class Trait(NamedTuple):
    word: str
    text: str
    name: str  # how an error calls it


class Word(NamedTuple):
    """A word of a cell, what the reason beside it must contain, and the trait from which both follow."""

    word: str
    text: str
    because: str


def kind_of_trait(side, name):
    """The row of WORDS for a name, None for one that no trait has."""
    if name in WORDS[side]:
        return name if name not in ("dtype", "layout") else None
    members = GROUPS.get(name, (name,))
    return next((kind for kind, names in (("dtype", DTYPES), ("layout", LAYOUTS)) if set(members) <= set(names)), None)


def wrong_traits(side, traits, where):
    for name, text in traits.items():
        kind = kind_of_trait(side, name)
        if kind is None:
            yield f"{where}: nothing is called {name!r}; a dtype, a layout or one of {sorted(WORDS[side])} expected"
        elif text.split(": ")[0] not in WORDS[side][kind]:
            yield f"{where}[{name!r}] is {text!r}; one of {sorted(WORDS[side][kind])} expected"


def check(entries):
    """Raises ValueError for what an entry says and nothing here understands."""
    wrong = []
    for entry in entries:
        name = entry["name"]
        wrong += wrong_traits("gives", entry["gives"], f"{name}: gives")
        wrong += wrong_traits("takes", entry["takes"], f"{name}: takes")
        for other, traits in dict(entry["brings"]).items():
            wrong += wrong_traits("takes", traits, f"{name}: brings[{other!r}]")
        dtypes = {*DTYPES, "float8", "complex"}
        wrong += [f"{name}: lacks {d!r}, which is no dtype" for d in entry["lacks"] if d not in dtypes]
        if not isinstance(entry["falls_back"], bool):
            wrong.append(f"{name}: falls_back is {entry['falls_back']!r}; true or false expected")
    if wrong:
        raise ValueError("; ".join(wrong))


def trait(entry, side, key):
    """A library's trait: that of the key itself, else of its group, else of everything, else "kept"."""
    said = dict(entry[side])
    if side == "takes" and key in LAYOUTS and key in entry["limits"]:
        return Trait("refused", entry["limits"][key], f"limits[{key!r}] of {entry['name']}")
    groups = [group for group, members in GROUPS.items() if key in members]
    for name in (key, *groups, *(["everything"] if key in (*DTYPES, *LAYOUTS) else [])):
        if name in said:
            word, _, text = said[name].partition(": ")
            return Trait(word, text, f"{side}[{name!r}] of {entry['name']}")
    return Trait("kept", "", f"{side} of {entry['name']}, which says nothing of {key!r}")


def on_host(entry):
    """Whether a library is one of the host's."""
    return entry["table"] not in ("cuda", "rocm")


def lacks(entry, dtype):
    return any(dtype in GROUPS.get(name, (name,)) for name in entry["lacks"])


def are_far(a, b):
    """Whether the two run in two processes, since neither environment has both. On a device, where memory is the
    process's own, there is an environment that has."""
    return on_host(a) and bool(a["env"] and b["env"] and a["env"] != b["env"])


def is_always_readonly(a):
    return trait(a, "gives", "readonly").word == "always"


def is_copied_on_request(a, b):
    """Whether the sink refuses all that the source has, as read-only, so that it gets copies."""
    return is_always_readonly(a) and trait(b, "takes", "readonly").word == "refused"


class Given(NamedTuple):
    """The tensor that the sink is given: its layout, and what may stand in the way."""

    layout: str
    readonly: bool = False
    unaligned: bool = False


def taken(b, given):
    """What becomes of it in one process: zero-copy, copied by b, or refused by b, and then whether Moonferry's copy is
    taken."""
    locked, as_is = trait(b, "takes", "readonly"), trait(b, "takes", given.layout)
    odd = trait(b, "takes", "unaligned") if given.unaligned else as_is
    if given.readonly and locked.word == "refused":
        return Word(f"refused by {b['name']}, copy taken", locked.text, locked.name)
    for found in (as_is, odd):
        if found.word == "refused":
            is_cured = given.layout in NEEDS_STRIDES or found is not as_is  # a copy is compact, and aligned
            text = "the tensor is read-only" if given.readonly and b["falls_back"] else found.text
            return Word(f"refused by {b['name']}, copy {'taken' if is_cured else 'refused'}", text, found.name)
    for found in (as_is, odd):
        if found.word == "copied":
            return Word(f"copied by {b['name']}", "", found.name)
    return Word("zero-copy", "", as_is.name)


def sharing_of(b, readonly, unaligned):
    """How memory is shared: `taken` in the words of that check."""
    word, text, because = taken(b, Given("c", readonly, unaligned))
    return Word(word.replace("refused by", "copied on request by").removesuffix(", copy taken"), text, because)


def written(a, b, shared, readonly):
    """Who writes and is seen, or is not; where nobody may, the memory is written behind everybody's back."""
    hand = "nobody" if readonly else "Moonferry"
    first, last = [a["name"]] * a["writes"], [b["name"]] * b["writes"]
    if shared:
        into = trait(b, "takes", "readonly" if readonly else "writable")
        words = [*first, hand, hand, *(last if into.word == ("lost" if readonly else "kept") else [])]
    else:
        words = [f"{name} (not seen)" for name in (*first, *last)]
    return Word(", ".join(words), "", f"write of {a['name']} and of {b['name']}")


def sharing(a, b, unaligned):
    """`unaligned` has "first" and "second" for the two arrays that the check looks at."""
    if are_far(a, b):
        last = [b["name"]] * b["writes"]
        yield "sharing", Word("second process", "", f"env of {a['name']} and of {b['name']}")
        yield "written", Word(", ".join(["Moonferry here", *last]), "", f"write of {b['name']}")
        return
    where, readonly = trait(a, "gives", "unaligned"), is_always_readonly(a)
    first, second = (sharing_of(b, readonly, part in unaligned) for part in ("first", "second"))
    yield "sharing", first
    yield "sharing, unaligned", second if second.word != first.word else Word("the same", "", second.because)
    yield "alignment", Word("64" if where.word == "never" else "any", "", where.name)
    if not first.word.startswith("copied on request"):
        yield "written", written(a, b, first.word == "zero-copy", readonly)


def takes_dtype(b, name):
    """The sink's trait for a dtype: one that it lacks it refuses, unless the entry says otherwise."""
    said = any(name in GROUPS.get(key, (key,)) for key in b["takes"])
    return trait(b, "takes", name) if said or not lacks(b, name) else Trait("refused", "", f"lacks of {b['name']}")


def dtype(a, b, name, unaligned):
    """What becomes of the elements; `unaligned` has the dtypes whose arrays lay at an odd address."""
    if on_host(a):  # on a device Moonferry gives the same bytes under each dtype
        for end in (a,) if are_far(a, b) else (a, b):
            if lacks(end, name):
                return Word("not tried", "", f"lacks of {end['name']}")
    for end in (a, b):
        if name in end["limits"]:
            return Word("not tried", "", f"limits[{name!r}] of {end['name']}")
    give = trait(a, "gives", name)
    if give.word == "refused":
        if are_far(a, b):
            return Word("not tried", "", give.name)
        return Word(f"refused by {a['name']}", give.text, give.name)
    take = takes_dtype(b, "uint8" if give.word == "uint8" else name)
    if take.word in ("refused", "unreadable"):
        return Word(f"{take.word} by {b['name']}", take.text, take.name)
    found = taken(b, Given("c", is_always_readonly(a), name in unaligned))
    if found.word.startswith("refused") and not is_copied_on_request(a, b):
        return Word(f"refused by {b['name']}", found.text, found.because)
    return Word("same bits", "", take.name)


def layout(a, b, name, unaligned):
    """What becomes of an array of that layout; `unaligned` has those that lay at an odd address."""
    give = trait(a, "gives", name)
    if give.word == "refused":
        return Word(f"refused by {a['name']}", give.text, give.name)
    if are_far(a, b):
        take = trait(b, "takes", "c" if name in NEEDS_STRIDES else name)
        if take.word == "refused":
            return Word(f"refused by {b['name']}, copy refused", take.text, take.name)
        return Word("copied into shared memory", "", take.name)
    if is_copied_on_request(a, b):
        found = taken(b, Given("c" if name in NEEDS_STRIDES else name))
        if found.word.startswith("refused"):
            return found
        because = trait(b, "takes", "readonly").name
        return Word("taken" if name == "empty" else "copied by Moonferry", "", because)
    readonly = is_always_readonly(a) or name == "zero" and give.word not in ("writable", "compact")
    shape = "c" if give.word == "compact" else name
    has_address = name != "empty"  # whose pointer may be NULL, and is looked at by nobody
    found = taken(b, Given(shape, readonly, has_address and name in unaligned))
    if found.word.startswith("refused"):
        return found
    if a["host"] or b["host"]:
        return Word("copied by Moonferry", "", f"host of {a['name'] if a['host'] else b['name']}")
    return Word("taken", "", found.because) if name == "empty" and on_host(a) else found


def readonly(a, b):
    """What becomes of an array that must not be written."""
    locked, copies = trait(b, "takes", "readonly"), trait(b, "takes", "c")
    if are_far(a, b) or b["host"]:
        return Word("a copy", "", f"{'host' if b['host'] else 'env'} of {b['name']}")
    if locked.word == "refused" and not is_copied_on_request(a, b):
        return Word("refused", locked.text, locked.name)
    if on_host(a) and not b["writes"]:
        return Word("nothing writes there", "", f"write of {b['name']}")
    if copies.word == "copied" or locked.word == "refused":
        return Word("a copy", "", copies.name if copies.word == "copied" else locked.name)
    return Word(f"lost by {b['name']}" if locked.word == "lost" else "kept", "", locked.name)


def in_environment(a, b):
    """The sink as it is in the environment of the source, which may have another version of it."""
    other = dict(a["brings"]).get(b["name"])
    return {**b, "takes": {**dict(b["takes"]), **other}} if other else b


def expected(a, b, unaligned):
    """Each word of the cell from library a to library b, by name. `unaligned` has, by check, the names of the arrays
    that lay at an address that is no multiple of 64."""
    b = in_environment(a, b)
    words: dict[str, Word] = {}
    if on_host(a):
        words |= dict(sharing(a, b, unaligned.get("sharing", [])))
    elif a["host"] or b["host"]:
        end = (a if a["host"] else b)["name"]
        words["sharing"] = Word(f"copied by {end}", "", f"host of {end}")
    else:
        words["sharing"] = sharing_of(b, is_always_readonly(a), False)
    words |= {f"dtype {name}": dtype(a, b, name, unaligned.get("dtypes", [])) for name in DTYPES}
    words |= {f"layout {name}": layout(a, b, name, unaligned.get("layouts", [])) for name in LAYOUTS}
    words["read-only"] = readonly(a, b)
    grows = dict(a["grows"]).get(b["name"])
    words["lifetime"] = Word(grows or "nothing left", "", f"grows of {a['name']}")
    return words
