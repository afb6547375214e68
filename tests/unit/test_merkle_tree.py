"""The tree of the politeness record, and its signed heads: every proof holds, and no changed one does."""

from __future__ import annotations

import pytest

from outrider.errors import SettingsError
from outrider.identity.merkle_tree import LineTree, ProofMaker, leaf_hash, proves
from outrider.identity.signed_note import TreeHead, head_of, public_key, read_head, signed_head, verifier_key
from outrider.identity.signing_key import make_key

LINES = [b"line %d" % number for number in range(40)]


def maker_of(lines):
    return ProofMaker(b"".join(map(leaf_hash, lines)))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 21, 32, 33, 40])
def test_each_line_is_proven_and_no_other(size):
    lines = LINES[:size]
    maker, tree = maker_of(lines), LineTree()
    tree.extend(lines)
    root = tree.root()
    assert root == maker.root()
    for index, line in enumerate(lines):
        proof = maker.proof(index)
        assert proves(leaf_hash(line), index, size, proof, root)
        assert not proves(leaf_hash(line + b"."), index, size, proof, root)
        assert not proves(leaf_hash(line), (index + 1) % size if size > 1 else 1, size, proof, root)
        assert not proves(leaf_hash(line), index, size, [*proof, root], root)
        if proof:
            assert not proves(leaf_hash(line), index, size, proof[:-1], root)
            assert not proves(leaf_hash(line), index, size, [bytes(32), *proof[1:]], root)


def test_a_tree_continues_from_its_state():
    tree = LineTree()
    for number, line in enumerate(LINES):
        tree = LineTree(tree.state)
        tree.extend([line])
        assert maker_of(LINES[: number + 1]).root() == tree.root()


def test_an_impossible_state_is_refused():
    with pytest.raises(ValueError, match="not the state"):
        LineTree((3, ["00" * 32]))


def test_a_head_is_read_with_its_key_alone(tmp_path):
    key, other = make_key(str(tmp_path / "a.pem")), make_key(str(tmp_path / "b.pem"))
    head = TreeHead("bot.example/record", 40, maker_of(LINES).root())
    note, verifier = signed_head(head, key), verifier_key(head.name, key.public)
    assert head == read_head(note, verifier) == head_of(note)
    assert (head.name, key.public) == public_key(verifier)
    with pytest.raises(SettingsError, match="another key"):
        read_head(note, verifier_key(head.name, other.public))
    with pytest.raises(SettingsError, match="signature of the tree head is wrong"):
        read_head(note.replace("\n40\n", "\n41\n"), verifier)
    for broken in ("", note[:-3], note.replace("\n40\n", "\n-1\n"), note + "x", note.replace("\u2014", "-")):
        with pytest.raises(SettingsError, match="not a signed note"):
            head_of(broken)
    for broken in ("", "a+b+c", verifier[:-4], verifier.replace("bot", "bat")):
        with pytest.raises(SettingsError, match="not an Ed25519 key"):
            public_key(broken)
