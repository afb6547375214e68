"""Who sends the requests: the crawler's key, its signatures, and the files by which sites verify it.

    signing_key.py        an Ed25519 key in a file that only its owner reads
    folder.py             the folder of an identity: key.pem and identity.toml
    signatures.py         signatures of requests and of the key directory (RFC 9421, Web Bot Auth)
    accept_signature.py   the field by which a site asks for a signature
    structured_fields.py  dictionaries of RFC 9651
    publication.py        the key directory, address ranges, agent card and bot page

Only signing_key.py uses the package `cryptography`, of the extra `identity`.
"""
