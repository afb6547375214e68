//! SimHash of a text (Charikar 2002): 64 bits that differ in few places when texts differ in few shingles.
//!
//! Semantics are written at the twin, `src/outrider/kernels/simhash.py`. The bits of each shingle's hash are counted as
//! it comes: eight counters of a byte each stand in one u64, and a table spreads an octet of the hash over them.

use crate::siphash::Fingerprinter;

/// Of each octet its bits, the lowest first, as octets 0 or 1 of a little-endian u64.
const SPREAD: [u64; 256] = spread();
/// A counter of one byte holds no more shingles than this.
const SHINGLES_AT_ONCE: u32 = 255;
/// Words of a shingle.
const SHINGLE_WORDS: usize = 3;
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const MIXER: u64 = 0xd6e8_feb8_6659_fd93;

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
    counted: u64,
}

impl Bits {
    const fn new() -> Self {
        Self { totals: [0; 64], small: [0; 8], pending: 0, counted: 0 }
    }

    fn count(&mut self, hash: u64) {
        for (counters, octet) in self.small.iter_mut().zip(hash.to_le_bytes()) {
            *counters += SPREAD[octet as usize];
        }
        self.counted += 1;
        self.pending += 1;
        if self.pending == SHINGLES_AT_ONCE {
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
        let counted = self.counted;
        let set = |bit: usize| u64::from(2 * self.totals[bit] > counted) << bit;
        (0..64).map(set).fold(0, |all, one| all | one)
    }
}

/// The SimHash of the shingles of a text in UTF-8, of no more than its first `words_max` words, and their number.
#[must_use]
pub fn simhash(text: &[u8], print: &Fingerprinter, words_max: usize) -> (u64, usize) {
    let words = hashes_of_words(text, print, words_max);
    if words.is_empty() {
        return (0, 0);
    }
    let width = words.len().min(SHINGLE_WORDS);
    let shingles = distinct(words.windows(width).map(mixed).collect());
    let mut bits = Bits::new();
    for shingle in &shingles {
        bits.count(*shingle);
    }
    (bits.outweigh(), shingles.len())
}

/// Octets whose sorts stand in one number.
const BLOCK: usize = 64;
/// Of a word with what parts it from the next one, about: room is made for so many at once.
const WORD_BYTES: usize = 5;

/// The hashes of the first words, letters of ASCII in lower case.
///
/// Bit by bit, a number says of 64 octets which belong to words; its edges are where words begin and end. The length of
/// a word is no branch so: nobody could foretell it.
fn hashes_of_words(text: &[u8], print: &Fingerprinter, words_max: usize) -> Vec<u64> {
    let mut words = Vec::with_capacity(words_max.min(text.len() / WORD_BYTES));
    if words_max == 0 {
        return words;
    }
    let mut lowered = Vec::with_capacity(text.len() + 2 * BLOCK);
    lowered.extend_from_slice(text);
    lowered.make_ascii_lowercase();
    if !text.is_ascii() {
        blank_other_spaces(&mut lowered);
    }
    // White space behind the end ends the last word, and lets `fingerprint_within` read on.
    lowered.resize((text.len() / BLOCK + 2) * BLOCK, b' ');
    let (mut start, mut inside, mut before) = (0, false, 0);
    for (row, block) in lowered[..lowered.len() - BLOCK].chunks_exact(BLOCK).enumerate() {
        let mut bits = 0;
        for (bit, octet) in block.iter().enumerate() {
            bits |= u64::from(OF_WORDS[*octet as usize]) << bit;
        }
        let mut edges = bits ^ (bits << 1 | before);
        before = bits >> (BLOCK - 1);
        while edges != 0 {
            let at = row * BLOCK + edges.trailing_zeros() as usize;
            edges &= edges - 1;
            if inside {
                words.push(print.fingerprint_within(&lowered, start, at));
                if words.len() == words_max {
                    return words;
                }
            }
            start = at;
            inside = !inside;
        }
    }
    words
}

/// Writes blanks over white space beyond ASCII.
fn blank_other_spaces(text: &mut [u8]) {
    for block in (0..text.len()).step_by(BLOCK) {
        let end = text.len().min(block + BLOCK);
        if text[block..end].is_ascii() {
            continue;
        }
        for at in block..end {
            let width = other_space(&text[at..]);
            text[at..at + width].fill(b' ');
        }
    }
}

/// So many places of a table may be looked at for each hash: a text whose hashes crowd in few places is sorted.
const LOOKS_MAX: usize = 8;

/// Hashes, each once, in any order.
fn distinct(mut hashes: Vec<u64>) -> Vec<u64> {
    let bits = (2 * hashes.len()).next_power_of_two().trailing_zeros().max(1);
    let mut places = vec![0; 1 << bits]; // each hash where its high bits say, or behind that
    let mut kept = Vec::with_capacity(hashes.len());
    let mut left = LOOKS_MAX * hashes.len();
    for &hash in &hashes {
        let mut place = (hash >> (64 - bits)) as usize;
        while places[place] != 0 && places[place] != hash && left > 0 {
            place = (place + 1) & (places.len() - 1);
            left -= 1;
        }
        if left == 0 || hash == 0 {
            hashes.sort_unstable();
            hashes.dedup();
            return hashes;
        }
        if places[place] == 0 {
            places[place] = hash;
            kept.push(hash);
        }
    }
    kept
}

/// One hash of the hashes of words, in their order.
fn mixed(words: &[u64]) -> u64 {
    words.iter().fold(0, |all: u64, word| {
        let mut value = all.wrapping_mul(MULTIPLIER).wrapping_add(*word);
        value ^= value >> 32;
        value = value.wrapping_mul(MIXER);
        value ^ (value >> 32)
    })
}

/// Of each octet whether it belongs to words: all but ASCII that is neither letter nor digit.
const OF_WORDS: [bool; 256] = {
    let mut table = [true; 256];
    let mut octet = 0;
    while octet < 128 {
        table[octet] = (octet as u8).is_ascii_alphanumeric();
        octet += 1;
    }
    table
};

/// How many octets at the front are white space beyond ASCII: 2, 3 or 0.
#[inline]
fn other_space(text: &[u8]) -> usize {
    match text {
        [0xc2, 0x85 | 0xa0, ..] => 2,
        [0xe1, 0x9a, 0x80, ..]
        | [0xe2, 0x80, 0x80..=0x8a | 0xa8 | 0xa9 | 0xaf, ..]
        | [0xe2, 0x81, 0x9f, ..]
        | [0xe3, 0x80, 0x80, ..] => 3,
        _ => 0,
    }
}

/// Of each number of tables the blocks of bits whose agreement puts two fingerprints side by side in a table: with three
/// bits that differ, one choice of blocks is free of them (Manku, Jain, Das Sarma 2007).
#[must_use]
pub fn choices(tables: usize) -> Option<Vec<u64>> {
    let pieces = |from: u32, widths: &[u32]| {
        let mut at = from;
        widths
            .iter()
            .map(|width| {
                at -= width;
                ((1_u64 << width) - 1) << at
            })
            .collect::<Vec<u64>>()
    };
    match tables {
        4 => Some(pieces(64, &[16; 4])),
        10 => {
            let blocks = pieces(64, &[13, 13, 13, 13, 12]);
            let pairs = (0..5).flat_map(|one| (one + 1..5).map(move |two| (one, two)));
            Some(pairs.map(|(one, two)| blocks[one] | blocks[two]).collect())
        }
        16 => Some(
            pieces(64, &[16; 4])
                .iter()
                .flat_map(|first| {
                    // The other 48 bits, in four parts of 12 from the highest on.
                    let mut others: Vec<u32> =
                        (0..64).filter(|bit| first >> bit & 1 == 0).collect();
                    others.reverse();
                    others
                        .chunks(12)
                        .map(|part| part.iter().fold(*first, |mask, bit| mask | 1 << bit))
                        .collect::<Vec<u64>>()
                })
                .collect(),
        ),
        20 => {
            let blocks = pieces(64, &[11, 11, 11, 11, 10, 10]);
            let mut masks = Vec::new();
            for one in 0..6 {
                for two in one + 1..6 {
                    for three in two + 1..6 {
                        masks.push(blocks[one] | blocks[two] | blocks[three]);
                    }
                }
            }
            Some(masks)
        }
        _ => None,
    }
}

/// Of how many bits the number of a bucket is made.
const BUCKET_BITS: u32 = 16;

/// From so many on fingerprints are taken in together: fewer cost less one by one than a look at all buckets.
const TOGETHER_MIN: usize = 1_024;

/// Fingerprints in the order of the bits of one choice of blocks.
struct Table {
    mask: u64,
    /// Runs of bits (shift to the right, width) that make up the key, the highest first.
    runs: Vec<(u32, u32)>,
    /// Behind the first bits of a key: fingerprints in the order of their keys, those of one key in their own.
    buckets: Vec<Vec<u64>>,
}

impl Table {
    fn new(mask: u64) -> Self {
        let mut runs = Vec::new();
        let mut bit = 64;
        while bit > 0 {
            let high = bit;
            while bit > 0 && mask >> (bit - 1) & 1 == 1 {
                bit -= 1;
            }
            if bit < high {
                runs.push((bit, high - bit));
            } else {
                bit -= 1;
            }
        }
        Self { mask, runs, buckets: vec![Vec::new(); 1 << BUCKET_BITS] }
    }

    /// The bits of the choice, packed.
    fn key(&self, fingerprint: u64) -> u64 {
        self.runs.iter().fold(0, |key, (shift, width)| {
            key << width | (fingerprint >> shift & ((1_u64 << width) - 1))
        })
    }

    fn bucket(&self, key: u64) -> usize {
        (key >> (self.mask.count_ones() - BUCKET_BITS)) as usize
    }

    fn add(&mut self, fingerprint: u64) -> bool {
        let key = self.key(fingerprint);
        let place = self.bucket(key);
        let found = self.buckets[place]
            .binary_search_by_key(&(key, fingerprint), |other| (self.key(*other), *other));
        match found {
            Ok(_) => false,
            Err(at) => {
                self.buckets[place].insert(at, fingerprint);
                true
            }
        }
    }

    /// Takes in many that are not there, in their order, each once: every bucket is sorted once.
    fn add_all(&mut self, fingerprints: &[u64]) {
        let mut counts = vec![0; self.buckets.len()];
        for fingerprint in fingerprints {
            counts[self.bucket(self.key(*fingerprint))] += 1;
        }
        for (bucket, count) in self.buckets.iter_mut().zip(&counts) {
            bucket.reserve_exact(*count);
        }
        for fingerprint in fingerprints {
            let place = self.bucket(self.key(*fingerprint));
            self.buckets[place].push(*fingerprint);
        }
        for place in (0..counts.len()).filter(|place| counts[*place] > 0) {
            let mut bucket = std::mem::take(&mut self.buckets[place]);
            // The stable sort, which merges runs that are in order: the old ones, and mostly the new ones.
            bucket.sort_by_key(|fingerprint| (self.key(*fingerprint), *fingerprint));
            self.buckets[place] = bucket;
        }
    }

    fn holds(&self, fingerprint: u64) -> bool {
        let key = self.key(fingerprint);
        self.buckets[self.bucket(key)]
            .binary_search_by_key(&(key, fingerprint), |other| (self.key(*other), *other))
            .is_ok()
    }

    fn near(&self, fingerprint: u64, distance: u32, found: &mut Vec<u64>) -> usize {
        let key = self.key(fingerprint);
        let bucket = &self.buckets[self.bucket(key)];
        let first = bucket.partition_point(|other| self.key(*other) < key);
        let mut looked = 0;
        for other in bucket[first..].iter().take_while(|other| self.key(**other) == key) {
            looked += 1;
            if (other ^ fingerprint).count_ones() <= distance {
                found.push(*other);
            }
        }
        looked
    }
}

/// Finds the fingerprints that differ from one in few bits. See the twin.
pub struct SimHashIndex {
    distance: u32,
    tables: Vec<Table>,
    size: usize,
}

impl SimHashIndex {
    /// None unless the distance is at most 3 and there is a design of so many tables.
    #[must_use]
    pub fn new(distance: u32, tables: usize) -> Option<Self> {
        let masks = choices(tables)?;
        if distance > 3 {
            return None;
        }
        Some(Self { distance, tables: masks.into_iter().map(Table::new).collect(), size: 0 })
    }

    /// Takes a fingerprint in; false if it is there.
    pub fn add(&mut self, fingerprint: u64) -> bool {
        let mut new = false;
        for table in &mut self.tables {
            new = table.add(fingerprint);
            if !new {
                break;
            }
        }
        self.size += usize::from(new);
        new
    }

    /// The known fingerprints within the distance, the nearest first, and how many were looked at.
    #[must_use]
    pub fn near(&self, fingerprint: u64) -> (Vec<u64>, usize) {
        let mut found = Vec::new();
        let looked = self
            .tables
            .iter()
            .map(|table| table.near(fingerprint, self.distance, &mut found))
            .sum();
        found.sort_unstable_by_key(|other| ((other ^ fingerprint).count_ones(), *other));
        found.dedup();
        (found, looked)
    }

    /// Takes many fingerprints in; how many are new.
    pub fn add_many(&mut self, fingerprints: impl Iterator<Item = u64>) -> usize {
        let mut fresh: Vec<u64> = fingerprints.collect();
        if fresh.len() < TOGETHER_MIN {
            return fresh.into_iter().map(|fingerprint| usize::from(self.add(fingerprint))).sum();
        }
        fresh.sort_unstable();
        fresh.dedup();
        fresh.retain(|fingerprint| !self.tables[0].holds(*fingerprint));
        for table in &mut self.tables {
            table.add_all(&fresh);
        }
        self.size += fresh.len();
        fresh.len()
    }

    /// The known fingerprints within the distance of each of these, one after the other, and how many each has.
    #[must_use]
    pub fn near_many(&self, fingerprints: impl Iterator<Item = u64>) -> (Vec<u64>, Vec<u32>) {
        let (mut all, mut counts) = (Vec::new(), Vec::new());
        for fingerprint in fingerprints {
            let found = self.near(fingerprint).0;
            counts.push(found.len() as u32);
            all.extend_from_slice(&found);
        }
        (all, counts)
    }

    /// How many fingerprints are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.size
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.size == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print() -> Fingerprinter {
        Fingerprinter::new(b"outrider simhash")
    }

    fn of(text: &str) -> (u64, usize) {
        simhash(text.as_bytes(), &print(), usize::MAX)
    }

    #[test]
    fn a_shingle_counts_once_and_case_does_not() {
        assert_eq!(of("a b c"), of("A b, c"));
        assert_eq!(of("a b c a b c a b"), of("a b c a b"));
        assert_eq!((0, 0), of(" ... \u{3000}"));
        assert_eq!((1, 1, 2), (of("a").1, of("a b").1, of("a b c d").1));
    }

    #[test]
    fn counters_overflow_nowhere() {
        let mut bits = Bits::new();
        (0..1_000).for_each(|_| bits.count(u64::MAX));
        (0..999).for_each(|_| bits.count(0));
        assert_eq!(u64::MAX, bits.outweigh());
    }

    #[test]
    fn each_hash_is_kept_once_however_they_crowd() {
        let some =
            |step: u64| (0..1_000).chain(0..1_000).map(|n: u64| n.wrapping_mul(step)).collect();
        for step in [0, 1, 3, 1 << 52, MULTIPLIER] {
            let mut kept = distinct(some(step));
            kept.sort_unstable();
            let mut sorted: Vec<u64> = some(step);
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted, kept, "{step}");
        }
        assert_eq!(vec![7], distinct(vec![7, 7, 7]));
        assert!(distinct(Vec::new()).is_empty());
    }

    #[test]
    fn words_beyond_the_limit_do_not_count() {
        assert_eq!(of("a b c"), simhash(b"a b c d", &print(), 3));
        assert_eq!((0, 0), simhash(b"a", &print(), 0));
    }

    #[test]
    fn many_together_are_as_one_by_one() {
        for tables in [4, 10, 16, 20] {
            let (Some(mut one), Some(mut many)) =
                (SimHashIndex::new(3, tables), SimHashIndex::new(3, tables))
            else {
                panic!("{tables}")
            };
            // Some stand there before, some come twice, and many share the bits of a key.
            let of = |n: u64| n.wrapping_mul(MULTIPLIER) & if n % 3 == 0 { 0xff } else { u64::MAX };
            for range in [0..1_500, 700..4_000, 3_990..4_010, 0..2_000] {
                let added = range.clone().map(|n| usize::from(one.add(of(n)))).sum::<usize>();
                assert_eq!(added, many.add_many(range.map(of)), "{tables}");
            }
            assert_eq!(one.len(), many.len());
            for (mine, others) in one.tables.iter().zip(&many.tables) {
                assert!(mine.buckets == others.buckets, "{tables}");
            }
        }
    }

    #[test]
    fn each_design_finds_any_three_bits() {
        for tables in [4, 10, 16, 20] {
            assert_eq!(tables, choices(tables).map_or(0, |masks| masks.len()));
            let Some(mut index) = SimHashIndex::new(3, tables) else { panic!("{tables}") };
            let fingerprint = 0x0123_4567_89ab_cdef;
            assert!(index.add(fingerprint) && !index.add(fingerprint));
            for one in 0..64 {
                for two in one..64 {
                    for three in two..64 {
                        let other = fingerprint ^ 1 << one ^ 1 << two ^ 1 << three;
                        assert_eq!(vec![fingerprint], index.near(other).0, "{one} {two} {three}");
                    }
                }
            }
            assert!(index.near(fingerprint ^ 0xf).0.is_empty());
        }
    }
}
