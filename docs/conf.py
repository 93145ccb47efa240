"""Settings of the documentation site (Sphinx); build it with `make docs`.

Why Sphinx, and what strict means here: docs/design/0020-documentation-site.md.
"""

from pathlib import Path

import orchestrator

project = "orchestrator"
author = "the orchestrator authors"
version = release = orchestrator.__version__
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"
exclude_patterns = ["images/*.png"]

# Each reference that does not resolve is a warning, and warnings are errors.
nitpicky = True
# Types that signatures name and that have no page here: those of other packages (their inventories
# would be fetched), and those of modules that are not public.
nitpick_ignore_regex = [
    (
        "py:.*",
        r"(abc|annotated_types|asyncio|collections|msgspec|os|pathlib|polars|pydantic|numpy|typing|types)\..*|PathLike|list\[.*|dict\[.*|p[dl]\.DataFrame|pa\.Table|Columns|Context|Source",
    ),
    ("py:.*", r"orchestrator\.(?!plugin\.)\w+\..*"),
]

myst_enable_extensions = ["attrs_inline", "colon_fence"]
# Anchors of headings are those that a repository's web view makes, to the depth that pages use.
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"orchestrator {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
# How-to pages come before design notes and the changelog.
html_search_scorer = str(Path(__file__).parent / "_static" / "scorer.js")
# Pages are read from the disk and from servers alike: nothing is fetched from elsewhere.
html_use_index = True
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False

default_role = "code"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
# Attributes that a docstring lists and the class also declares would be described twice.
napoleon_use_ivar = True
# Types are in the signatures; a colon in `Returns:` belongs to its sentence.
napoleon_custom_sections = [("Returns", "rubric")]
