"""Dictionaries of structured fields are read as another library reads them."""

from __future__ import annotations

import random

import http_sf
import pytest

from outrider.errors import SettingsError
from outrider.structured_fields import Date, DisplayString, Token, read_dictionary

PIECES = (
    *("a", "b=y", "train-ai=n", ",", ", ", " ", "\t", "=", ";x", "; x=1", "1.5", "123456789012345", '"q"', '"a\\"b"'),
    *("?1", "?2", ":YQ==:", "@12", "@1.5", '%"a%c3%bc"', "(a b)", "()", "( a ;x)", "*k", "-3", "999999999999.5"),
)


def test_random_texts_are_accepted_and_refused_alike():
    chance = random.Random(9651)
    accepted = 0
    for _ in range(20_000):
        text = "".join(chance.choice(PIECES) for _ in range(chance.randrange(1, 6))).strip(" \t")
        try:
            expected = {key: str(value[0]) for key, value in http_sf.parse(text.encode(), tltype="dictionary").items()
                        if isinstance(value[0], http_sf.Token)}  # fmt: skip
        except ValueError:
            with pytest.raises(SettingsError):
                read_dictionary(text)
            continue
        found = read_dictionary(text)
        assert expected == {key: one.value for key, one in found.items() if isinstance(one.value, Token)}, text
        accepted += 1
    assert accepted > 1_000


def test_values_have_their_types():
    found = read_dictionary('a=t, b="s\\"", c=1, d=1.5, e, f=?0, g=:YQ==:, h=@-5, i=%"%c3%bc", j=(x "y");z=2')
    values = {key: one.value for key, one in found.items()}
    assert {"b": 's"', "c": 1, "d": 1.5, "e": True, "f": False, "g": b"a"}.items() <= values.items()
    assert (Token("t"), Date(-5), DisplayString("ü")) == (values["a"], values["h"], values["i"])
    assert [Token, Date, DisplayString] == [type(values[key]) for key in "ahi"]
    assert [Token("x"), "y"] == [one.value for one in found["j"].value]
    assert {"z": 2} == found["j"].parameters


@pytest.mark.parametrize("text", ["a=:a:", 'a=%"%ff"', "a=\u0661", "A=1", "a=1,", "a=(b", "a=1.2345"])
def test_a_malformed_dictionary_is_refused_with_the_place(text):
    with pytest.raises(SettingsError, match=r"character \d+ is not"):
        read_dictionary(text)
