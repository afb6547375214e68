"""The rules of a site: robots.txt by RFC 9309. Pure: bytes in, verdicts out."""

from outrider.robots.directives import FIELD as ROBOTS_FIELD
from outrider.robots.directives import header_directives, page_directives, strictest
from outrider.robots.hours import opens_at
from outrider.robots.preferences import FIELDS as PREFERENCE_FIELDS
from outrider.robots.preferences import preferences_of, said_in_fields
from outrider.robots.rules import (
    ALLOW_ALL,
    REFUSE_ALL,
    AgentRules,
    Answer,
    RuleLine,
    Rules,
    ignored_lines,
    verdict_of_status,
    verdicts,
    whole_lines,
)
from outrider.robots.tdmrep import TdmFile

__all__ = [
    "ALLOW_ALL",
    "REFUSE_ALL",
    "PREFERENCE_FIELDS",
    "ROBOTS_FIELD",
    "AgentRules",
    "Answer",
    "RuleLine",
    "Rules",
    "TdmFile",
    "header_directives",
    "ignored_lines",
    "opens_at",
    "page_directives",
    "preferences_of",
    "said_in_fields",
    "strictest",
    "verdict_of_status",
    "verdicts",
    "whole_lines",
]
