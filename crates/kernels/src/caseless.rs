//! Pieces of text in any case.
//!
//! Semantics are written at the twin, `src/outrider/kernels/caseless.py`.

use memchr::{memchr2_iter, memchr_iter};

/// Octets from the rarest on, as they stand in lower-cased pages (2,000 of them); all others are more frequent.
const RAREST_FIRST: &[u8] = b"zqj7435986_2xk1w0yvbugf.-mhd/ocpri<>lntea";

/// Whether each piece, which is in lower case, stands in a text in any case of ASCII.
#[must_use]
pub fn holds_all(text: &[u8], pieces: &[&[u8]]) -> bool {
    pieces.iter().all(|piece| holds(text, piece))
}

fn holds(text: &[u8], piece: &[u8]) -> bool {
    // Looking for the rarest octet alone is fast, and the others are compared seldom.
    let rank = |octet: &u8| RAREST_FIRST.iter().position(|one| one == octet).unwrap_or(usize::MAX);
    let Some((at, &octet)) = piece.iter().enumerate().min_by_key(|(_, octet)| rank(octet)) else {
        return true;
    };
    let is_here = |place: usize| {
        let begin = place.checked_sub(at);
        let found = begin.and_then(|begin| text.get(begin..begin + piece.len()));
        found
            .is_some_and(|found| found.iter().map(u8::to_ascii_lowercase).eq(piece.iter().copied()))
    };
    match octet.to_ascii_uppercase() {
        upper if upper == octet => memchr_iter(octet, text).any(is_here),
        upper => memchr2_iter(octet, upper, text).any(is_here),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_found_in_any_case_and_place() {
        for text in
            [&b"anubis_challenge"[..], b"..ANUBIS_Challenge", b"anubis_challengAnubis_challenge."]
        {
            assert!(holds_all(text, &[b"anubis_challenge"]));
        }
        for text in [&b""[..], b"_", b"nubis_challenge", b"anubis_challeng", b"anubis challenge"] {
            assert!(!holds_all(text, &[b"anubis_challenge"]));
        }
    }

    #[test]
    fn each_piece_must_be_there() {
        let pieces: [&[u8]; 3] = [b"", b"b", b"c"];
        assert_eq!((true, false), (holds_all(b"C B", &pieces), holds_all(b"b", &pieces)));
    }

    #[test]
    fn upper_case_in_a_piece_is_never_found() {
        assert!(!holds_all(b"W w A a", &[b"W"]) && !holds_all(b"aW aw", &[b"aW"]));
    }
}
