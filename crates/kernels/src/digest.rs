//! The digest of what a page says, which small changes around it leave alone.
//!
//! Semantics are written at the twin, `src/outrider/kernels/digest.py`.

use memchr::memchr;

use crate::eight;
use crate::siphash::Fingerprinter;

/// The hash of the words of a text in blocks of at least `words_min` words; of all where there is no such block.
#[must_use]
pub fn text_digest(text: &[u8], print: &Fingerprinter, words_min: usize) -> u64 {
    Digester::default().text_digest(text, print, words_min)
}

/// Makes digests of many texts in the same memory.
#[derive(Default)]
pub struct Digester {
    kept: Vec<u8>,
}

impl Digester {
    /// See `text_digest`.
    pub fn text_digest(&mut self, text: &[u8], print: &Fingerprinter, words_min: usize) -> u64 {
        let kept = &mut self.kept;
        keep_blocks(kept, text, words_min);
        if kept.is_empty() {
            keep_blocks(kept, text, 0);
        }
        if kept.is_empty() {
            0
        } else {
            print.fingerprint(kept)
        }
    }
}

/// Keeps the words without digits in the blocks that have so many of them, each with a blank behind it, and nothing else.
fn keep_blocks(kept: &mut Vec<u8>, text: &[u8], words_min: usize) {
    kept.clear();
    kept.reserve(text.len() + 1);
    let mut next = 0;
    while next < text.len() {
        let (start, end) =
            (next, memchr(b'\n', &text[next..]).map_or(text.len(), |found| next + found));
        next = end + 1;
        // So many words, and a blank between each two.
        if start == end || end - start + 1 < 2 * words_min.min(text.len()) {
            continue;
        }
        let begin = kept.len();
        if !keep_runs(kept, text, start, end) {
            kept.truncate(begin);
            keep_words(kept, &text[start..end]);
        }
        if words_min > 0 && !has_blanks(&kept[begin..], words_min) {
            kept.truncate(begin);
        }
    }
}

fn has_blanks(octets: &[u8], at_least: usize) -> bool {
    let (mut found, mut at) = (0, 0);
    while let Some(eight) = eight::at(octets, at) {
        found += eight::count(eight::equal(eight, b' '));
        if found >= at_least {
            return true;
        }
        at += 8;
    }
    found + octets[at..].iter().filter(|octet| **octet == b' ').count() >= at_least
}

/// Keeps the words without digits of a block whose words are parted by one blank each, as in nearly all blocks of pages:
/// runs of them are copied whole. False for another block, of which anything may have been kept.
fn keep_runs(kept: &mut Vec<u8>, text: &[u8], start: usize, end: usize) -> bool {
    if text[end - 1] == b' ' {
        return false;
    }
    let mut from = start;
    loop {
        let found = digit_or_gap(text, from, end);
        if found == end {
            kept.extend_from_slice(&text[from..end]);
            kept.push(b' ');
            return true;
        }
        if !text[found].is_ascii_digit() {
            return false;
        }
        let before = text[from..found].iter().rposition(|octet| *octet == b' ');
        kept.extend_from_slice(&text[from..before.map_or(from, |at| from + at + 1)]);
        // The word ends with white space, or a control character that may belong to it.
        let behind = text[found..end].iter().position(|octet| *octet <= b' ');
        match behind.map(|more| found + more) {
            None => return true,
            Some(blank) if text[blank] == b' ' => from = blank + 1,
            Some(_) => return false,
        }
    }
}

const ZEROS: u64 = u64::from_le_bytes([b'0'; 8]);

/// Where the first digit is, or white space that is no single blank between words, or a control character; `from` stands
/// behind a blank or the beginning.
fn digit_or_gap(text: &[u8], from: usize, end: usize) -> usize {
    let mut at = from;
    let mut parted = 0x80; // the mark of an octet in front that is a blank
    while at < end {
        let Some(eight) = eight::at(text, at) else { break };
        // Digits are 0 to 9 once the bits of the first are taken out.
        let low = eight::below(eight, b' ') | eight::below(eight ^ ZEROS, 10);
        let blank = eight::equal(eight, b' ');
        let found = low | blank & (blank << 8 | parted);
        if found != 0 {
            return end.min(at + eight::first(found));
        }
        parted = blank >> 56;
        at += 8;
    }
    let is_blank = |at: usize| at == from || text[at - 1] == b' ';
    (at..end)
        .find(|at| {
            let octet = text[*at];
            octet.is_ascii_digit() || octet < b' ' || (octet == b' ' && is_blank(*at))
        })
        .unwrap_or(end)
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
    fn runs_are_the_words_of_their_blocks() {
        let mut state = 3_u64;
        for size in 1..3_000 {
            let text: Vec<u8> = (0..size % 60 + 1)
                .map(|_| {
                    state = state
                        .wrapping_mul(0x5851_f42d_4c95_7f2d)
                        .wrapping_add(0x1405_7b7e_f767_814f);
                    let sorts: &[u8] =
                        if size % 3 == 0 { b"abcdefg hij 7 \t\r\x01" } else { b"abcde fgh3\xc3" };
                    sorts[(state >> 33) as usize % sorts.len()]
                })
                .collect();
            for start in 0..text.len() {
                let (mut runs, mut words) = (Vec::new(), Vec::new());
                keep_words(&mut words, &text[start..]);
                if keep_runs(&mut runs, &text, start, text.len()) {
                    assert_eq!(words, runs, "{:?}", &text[start..]);
                }
                let blanks = words.iter().filter(|octet| **octet == b' ').count();
                assert!(has_blanks(&words, blanks) && !has_blanks(&words, blanks + 1));
            }
        }
    }

    #[test]
    fn numbers_and_short_blocks_change_nothing() {
        let print = Fingerprinter::new(&[7; 16]);
        let one = text_digest(b"Home 17\nthis is what a page says on 3 May\n", &print, 4);
        let other = text_digest(b"Start\nthis is  what a page says on 14 May", &print, 4);
        assert_eq!(one, other);
        assert_ne!(one, text_digest(b"this is what a page says on Sunday", &print, 4));
        assert_eq!(text_digest(b"", &print, 4), 0);
        let mut digester = Digester::default();
        for text in
            [&b"one two three four five"[..], b"a 1 b", b"1\n2", b"", b"one two three four five"]
        {
            assert_eq!(text_digest(text, &print, 4), digester.text_digest(text, &print, 4));
        }
        assert_ne!(text_digest(b"one", &print, 4), text_digest(b"two", &print, 4));
    }
}
