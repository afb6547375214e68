//! The digest of what a page says, which small changes around it leave alone.
//!
//! Semantics are written at the twin, `src/outrider/kernels/digest.py`.

use memchr::memchr;

use crate::siphash::Fingerprinter;

/// The hash of the words of a text in blocks of at least `words_min` words; of all where there is no such block.
#[must_use]
pub fn text_digest(text: &[u8], print: &Fingerprinter, words_min: usize) -> u64 {
    let mut kept = words_of(text, words_min);
    if kept.is_empty() {
        kept = words_of(text, 0);
    }
    if kept.is_empty() {
        0
    } else {
        print.fingerprint(&kept)
    }
}

/// The words without digits in the blocks that have so many of them, each with a blank behind it.
fn words_of(text: &[u8], words_min: usize) -> Vec<u8> {
    let mut kept = Vec::with_capacity(text.len() + 1);
    let mut next = 0;
    while next < text.len() {
        let end = memchr(b'\n', &text[next..]).map_or(text.len(), |found| next + found);
        let block = &text[next..end];
        next = end + 1;
        // So many words, and a blank between each two.
        if block.is_empty() || block.len() + 1 < 2 * words_min.min(text.len()) {
            continue;
        }
        let begin = kept.len();
        if is_even(block) {
            keep_runs(&mut kept, block);
        } else {
            keep_words(&mut kept, block);
        }
        if words_min > 0 && kept[begin..].iter().filter(|octet| **octet == b' ').count() < words_min
        {
            kept.truncate(begin);
        }
    }
    kept
}

/// Whether the words of a block are parted by one blank each, as in nearly all blocks of pages: runs of them are copied
/// whole. No branch in the loop, so that many octets are looked at together.
fn is_even(block: &[u8]) -> bool {
    let mut other = block.first() == Some(&b' ') || block.last() == Some(&b' ');
    for (octet, next) in block.iter().zip(&block[1..]) {
        other |= (*octet == b' ') & (*next == b' ');
    }
    for octet in block {
        other |= matches!(octet, b'\t'..=b'\r');
    }
    !other
}

/// Keeps the words without digits of an even block.
fn keep_runs(kept: &mut Vec<u8>, block: &[u8]) {
    let mut from = 0;
    while let Some(digit) = digit_behind(block, from) {
        let before = block[from..digit].iter().rposition(|octet| *octet == b' ');
        kept.extend_from_slice(&block[from..before.map_or(from, |at| from + at + 1)]);
        let Some(behind) = block[digit..].iter().position(|octet| *octet == b' ') else { return };
        from = digit + behind + 1;
    }
    kept.extend_from_slice(&block[from..]);
    kept.push(b' ');
}

/// Where the next digit is.
fn digit_behind(block: &[u8], mut from: usize) -> Option<usize> {
    for some in block[from..].chunks(32) {
        // All of them together, without a branch for each.
        if some.iter().fold(false, |found, octet| found | octet.is_ascii_digit()) {
            return some.iter().position(u8::is_ascii_digit).map(|at| from + at);
        }
        from += some.len();
    }
    None
}

/// Keeps the words without digits of any block.
fn keep_words(kept: &mut Vec<u8>, block: &[u8]) {
    for word in block.split(|octet| matches!(octet, b' ' | b'\t'..=b'\r')) {
        if !word.is_empty() && !word.iter().any(u8::is_ascii_digit) {
            kept.extend_from_slice(word);
            kept.push(b' ');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_short_blocks_change_nothing() {
        let print = Fingerprinter::new(&[7; 16]);
        let one = text_digest(b"Home 17\nthis is what a page says on 3 May\n", &print, 4);
        let other = text_digest(b"Start\nthis is  what a page says on 14 May", &print, 4);
        assert_eq!(one, other);
        assert_ne!(one, text_digest(b"this is what a page says on Sunday", &print, 4));
        assert_eq!(text_digest(b"", &print, 4), 0);
        assert_ne!(text_digest(b"one", &print, 4), text_digest(b"two", &print, 4));
    }
}
