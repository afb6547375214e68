"""Files of a package that writes robots.txt with preferences are read as their settings mean."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from e2e.crawling import outrider
from servers.programs import npm_package, program

SOURCE = Path(__file__).parent / "robots_judge.mjs"
SETTINGS: dict[str, Any] = {
    "groups": [
        {
            "userAgent": ["*"],
            "allow": ["/private/open"],
            "disallow": ["/private"],
            "contentUsage": ["train-ai=n", "/docs/ train-ai=y"],
            "contentSignal": ["ai-input=no", "/blog/ search=yes"],
        },
        {
            "userAgent": ["ClosedBot", "OtherBot"],
            "disallow": ["/"],
            "contentUsage": {"train-ai": "n", "search": "y"},
            "contentSignal": {"ai-train": "no", "search": "yes"},
        },
        {"userAgent": ["OpenBot"], "disallow": [""], "contentSignal": {"ai-train": "yes"}},
    ],
    "sitemaps": ["https://a.test/sitemap.xml"],
}


@pytest.fixture(scope="module")
def robots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The robots.txt of these settings."""
    folder = tmp_path_factory.mktemp("robots")
    npm_package("@nuxtjs/robots@6.2.3", folder)
    shutil.copy(SOURCE, folder)
    (folder / "settings.json").write_text(json.dumps(SETTINGS))
    words = [program("node"), SOURCE.name, "settings.json"]
    made = subprocess.run(words, cwd=folder, capture_output=True, check=True, text=True, timeout=60).stdout
    assert "Content-Usage: /docs/ train-ai=y\n" in made
    assert "Content-Signal: /blog/ search=yes\n" in made
    (folder / "robots.txt").write_text(made)
    return folder / "robots.txt"


@pytest.mark.parametrize(
    ("agent", "path", "uses"),
    [
        ("Any", "/", {"train-ai": "n", "ai-use": "n"}),
        ("Any", "/docs/a", {"train-ai": "y", "ai-use": "n"}),
        ("Any", "/blog/a", {"train-ai": "n", "ai-use": "n", "search": "y"}),
        ("Any", "/private/open", {"train-ai": "n", "ai-use": "n"}),
        ("Any", "/private/a", None),
        ("ClosedBot", "/", None),
        ("OtherBot", "/docs/a", None),
        ("OpenBot", "/private/a", {"train-ai": "y"}),
    ],
)
def test_rules_and_preferences_are_those_of_the_settings(robots: Path, agent: str, path: str, uses: Any) -> None:
    """uses: None for a path that the settings close to the agent."""
    done = outrider("robots", "check", robots, path, "--agent", agent, "--json")
    found = json.loads(done.stdout)
    assert (uses is not None) == found["allowed"]
    assert uses == (found["preferences"] or {}).get("uses")
