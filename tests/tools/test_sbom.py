from tools import sbom

BILL = {
    "components": [
        {"name": "b", "version": "1", "licenses": [{"license": {"id": "MIT"}}]},
        {"name": "C", "version": "2", "licenses": [{"expression": "X AND Y"}]},
        {"name": "d", "version": "3"},
    ],
}
REQUIRES = {
    "root": ["b>=1", "e; extra == 'more'", "f; extra == 'unused'"],
    "b": ["C", "d; extra == 'docs'", "g; python_version < '3'"],
    "c": ["b", "h[x]"],
    "h": ["i; extra == 'x'"],
}


def test_what_is_needed_follows_markers_and_the_extras_that_are_installed():
    needed = sbom.dependencies("Root", ["more"], lambda name: REQUIRES.get(name, ()))
    assert needed == {"b", "c", "e", "h", "i"}


def test_what_is_needed_is_listed_apart_from_what_only_development_uses():
    lines = list(sbom.listed(BILL, {"b", "c"}))
    assert [line.split()[0] for line in lines] == ["Runtime,", "b", "C", "Development", "d"]
    assert lines[2].split() == ["C", "2", "X", "AND", "Y"]
    assert lines[4].endswith(sbom.UNSTATED)


def test_a_classifier_is_shown_where_no_spdx_id_is_given():
    stated = [{"license": {"name": "License :: OSI Approved :: BSD License"}}]
    assert sbom.licence(stated) == "BSD License"
    assert sbom.licence([{"license": {"id": "MIT"}}, *stated]) == "MIT"
