//! SimHash of a text (Charikar 2002): 64 bits that differ in few places when texts differ in few words.
//!
//! Semantics are written at the twin, `src/outrider/kernels/simhash.py`. Instead of counting words first, the bits of
//! each word's hash are counted as it comes: eight counters of a byte each stand in one u64, and a table spreads an
//! octet of the hash over them.

use crate::siphash::Fingerprinter;

/// Of each octet its bits, the lowest first, as octets 0 or 1 of a little-endian u64.
const SPREAD: [u64; 256] = spread();
/// A counter of one byte holds no more words than this.
const WORDS_AT_ONCE: u32 = 255;

const fn spread() -> [u64; 256] {
    let mut table = [0; 256];
    let mut octet = 0;
    while octet < 256 {
        let mut bit = 0;
        while bit < 8 {
            table[octet] |= ((octet as u64 >> bit) & 1) << (8 * bit);
            bit += 1;
        }
        octet += 1;
    }
    table
}

/// How often each bit is set in what was counted.
struct Bits {
    totals: [u64; 64],
    small: [u64; 8],
    pending: u32,
    words: u64,
}

impl Bits {
    const fn new() -> Self {
        Self { totals: [0; 64], small: [0; 8], pending: 0, words: 0 }
    }

    fn count(&mut self, hash: u64) {
        for (counters, octet) in self.small.iter_mut().zip(hash.to_le_bytes()) {
            *counters += SPREAD[octet as usize];
        }
        self.words += 1;
        self.pending += 1;
        if self.pending == WORDS_AT_ONCE {
            self.drain();
        }
    }

    fn drain(&mut self) {
        for (octet, counters) in self.small.iter().enumerate() {
            for (bit, &count) in counters.to_le_bytes().iter().enumerate() {
                self.totals[8 * octet + bit] += u64::from(count);
            }
        }
        self.small = [0; 8];
        self.pending = 0;
    }

    fn outweigh(mut self) -> u64 {
        self.drain();
        let words = self.words;
        let set = |bit: usize| u64::from(2 * self.totals[bit] > words) << bit;
        (0..64).map(set).fold(0, |all, one| all | one)
    }
}

/// The SimHash of the words of a text in UTF-8, of no more than the first `words_max`; 0 when there are none.
#[must_use]
pub fn simhash(text: &[u8], print: &Fingerprinter, words_max: usize) -> u64 {
    let mut bits = Bits::new();
    let mut at = 0;
    let mut left = words_max;
    while left > 0 {
        while at < text.len() {
            match parting(&text[at..]) {
                0 => break,
                width => at += width,
            }
        }
        if at >= text.len() {
            break;
        }
        let start = at;
        while at < text.len() && parting(&text[at..]) == 0 {
            at += 1;
        }
        bits.count(print.fingerprint(&text[start..at]));
        left -= 1;
    }
    bits.outweigh()
}

/// How many octets at the front part words: 1 for ASCII that is neither letter nor digit, 2 or 3 for other white space,
/// else 0.
#[inline]
fn parting(text: &[u8]) -> usize {
    match text {
        [octet, ..] if *octet < 0x80 => usize::from(!octet.is_ascii_alphanumeric()),
        [0xc2, 0x85 | 0xa0, ..] => 2,
        [0xe1, 0x9a, 0x80, ..]
        | [0xe2, 0x80, 0x80..=0x8a | 0xa8 | 0xa9 | 0xaf, ..]
        | [0xe2, 0x81, 0x9f, ..]
        | [0xe3, 0x80, 0x80, ..] => 3,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print() -> Fingerprinter {
        Fingerprinter::new(b"outrider simhash")
    }

    fn of(text: &str) -> u64 {
        simhash(text.as_bytes(), &print(), usize::MAX)
    }

    #[test]
    fn one_word_is_its_own_hash() {
        assert_eq!(print().fingerprint(b"word"), of(" word!"));
        assert_eq!(0, of(" ... \u{3000}"));
    }

    #[test]
    fn counters_overflow_nowhere() {
        let (one, other) = ("one ".repeat(1_000), "two ".repeat(999));
        assert_eq!(of("one"), of(&(one.clone() + &other)));
        assert_eq!(of("one") & of("two"), of(&(one + &other + "two")));
    }

    #[test]
    fn words_beyond_the_limit_do_not_count() {
        assert_eq!(of("a b"), simhash("a b c".as_bytes(), &print(), 2));
        assert_eq!(0, simhash(b"a", &print(), 0));
    }
}
