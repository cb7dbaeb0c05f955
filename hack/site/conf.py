# SPDX-License-Identifier: Apache-2.0
"""Sphinx makes a site of the Markdown as it is: see `make docs`. Its navigation is README.md's index of documents."""

import re
from pathlib import Path

from docutils import nodes

repository = "https://github.com/capmaas/cluster-api-provider-maas"

project = "CAPMAAS"
author = "the CAPMAAS authors"
root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "charts/*/README.md"]
exclude_patterns = ["bin", "out", ".*"]
extensions = ["myst_parser"]
myst_heading_anchors = 4

html_theme = "furo"
html_title = project
templates_path = ["templates"]
html_additional_pages = {"index": "start.html"}
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = "scorer.js"
html_js_files = ["diagrams.js"]
html_theme_options = {
    "footer_icons": [
        {
            "name": "Source",
            "url": repository,
            "html": "Source",
            "class": "",
        }
    ]
}

# Which page of which task, in README.md: "### Task", and below it "- [Page](path.md): five words".
TASK = re.compile(r"^### (.+)$")
PAGE = re.compile(r"^- \[([^]]+)\]\(([^)]+)\.md\)")


def add_navigation(app, page, source):
    """Adds the navigation to the start page, and to that of the decision records. Sphinx warns of a page in none."""
    if page == "docs/adr/README":
        source[0] += toctree([":glob:"], ["[0-9]*"])
    if page != root_doc:
        return
    tasks = {}
    _, _, index = source[0].partition("\n## Documents\n")
    for line in index.splitlines():
        if task := TASK.match(line):
            pages = tasks.setdefault(task[1], [])
        elif entry := PAGE.match(line):
            pages.append(f"{entry[1]} <{entry[2]}>")
    for task, pages in tasks.items():
        source[0] += toctree([f":caption: {task}"], pages)


def toctree(options, pages):
    return "\n".join(["", "```{toctree}", ":hidden:", *options, "", *pages, "```", ""])


def link_directory(app, env, reference, text):
    """Leads to a directory in the repository: pages are in the site, other files are downloads."""
    path = Path(env.doc2path(reference["refdoc"])).parent / reference["reftarget"]
    if path.is_dir():
        within = path.resolve().relative_to(Path(app.srcdir).resolve())
        return nodes.reference("", "", text, refuri=f"{repository}/tree/main/{within}")


def mark_diagrams(app, document):
    """Leaves Mermaid's text as it is, for diagrams.js to draw."""
    for block in document.findall(nodes.literal_block):
        if block.get("language") == "mermaid":
            drawn = nodes.container("", nodes.literal_block(block.astext(), block.astext(), language="text"))
            drawn["classes"].append("diagram")
            block.replace_self(drawn)


def setup(app):
    app.connect("source-read", add_navigation)
    app.connect("missing-reference", link_directory)
    app.connect("doctree-read", mark_diagrams)
