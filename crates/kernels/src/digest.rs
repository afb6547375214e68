//! The digest of what a page says, which small changes around it leave alone.
//!
//! Semantics are written at the twin, `src/outrider/kernels/digest.py`.

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

const LETTER: u8 = 0;
const DIGIT: u8 = 1;
const BLANK: u8 = 2;
const LINE_FEED: u8 = 3;

/// Of each octet what it is to a text.
const SORTS: [u8; 256] = {
    let mut table = [LETTER; 256];
    let mut octet = 0;
    while octet < 256 {
        table[octet] = match octet as u8 {
            b'0'..=b'9' => DIGIT,
            b'\n' => LINE_FEED,
            b' ' | b'\t'..=b'\r' => BLANK,
            _ => LETTER,
        };
        octet += 1;
    }
    table
};

/// The words without digits in the blocks that have so many of them, each with a blank behind it.
fn words_of(text: &[u8], words_min: usize) -> Vec<u8> {
    // Octet by octet, and back where a word or a block turns out not to count: a copy of each word is dearer.
    let mut kept = vec![0; text.len() + 1];
    let (mut end, mut word, mut block) = (0, 0, 0);
    let (mut words, mut digits) = (0, false);
    for octet in text.iter().copied().chain([b'\n']) {
        let sort = SORTS[octet as usize];
        if sort < BLANK {
            kept[end] = octet;
            end += 1;
            digits |= sort == DIGIT;
            continue;
        }
        if digits {
            end = word;
            digits = false;
        } else if end > word {
            kept[end] = b' ';
            end += 1;
            words += 1;
        }
        if sort == LINE_FEED {
            if words < words_min {
                end = block;
            }
            block = end;
            words = 0;
        }
        word = end;
    }
    kept.truncate(end);
    kept
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
