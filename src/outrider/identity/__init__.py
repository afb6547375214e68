"""The proof of who sends the requests: the crawler's key, its signatures, the files for sites, and signed records.

    signing_key.py        an Ed25519 key in a file that only its owner reads
    folder.py             the folder of an identity: key.pem and identity.toml
    signatures.py         signatures of requests and of the key directory (RFC 9421, Web Bot Auth)
    accept_signature.py   the field by which a site asks for a signature
    publication.py        the key directory, address ranges, agent card and bot page
    merkle_tree.py        a tree over lines (RFC 9162): roots and inclusion proofs
    signed_note.py        a tree head with its signature, as a signed note

Only signing_key.py and signed_note.py use the package `cryptography`, of the extra `identity`.
"""
