//! SimHash of a text (Charikar 2002): 64 bits that differ in few places when texts differ in few shingles.
//!
//! Semantics are written at the twin, `src/outrider/kernels/simhash.py`. The bits of the shingles' hashes are counted as
//! they come, all 64 at once: plane k has the bit of weight 2^k of each count.

use crate::siphash::Fingerprinter;

/// Words of a shingle.
const SHINGLE_WORDS: usize = 3;
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const MIXER: u64 = 0xd6e8_feb8_6659_fd93;
/// Shingles are counted so many at once: in seven additions without a carry that goes on.
const AT_ONCE: usize = 8;
const PLANES: usize = 64;

/// How often each bit is set in what was counted.
struct Bits {
    planes: [u64; PLANES],
    waiting: [u64; AT_ONCE],
    counted: u64,
}

impl Bits {
    const fn new() -> Self {
        Self { planes: [0; PLANES], waiting: [0; AT_ONCE], counted: 0 }
    }

    #[inline]
    fn count(&mut self, hash: u64) {
        self.waiting[self.counted as usize % AT_ONCE] = hash;
        self.counted += 1;
        if self.counted % AT_ONCE as u64 == 0 {
            self.drain();
        }
    }

    fn drain(&mut self) {
        let [a, b, c, d, e, f, g, h] = self.waiting;
        let [ones, twos, fours, ..] = self.planes;
        let (ones, first) = sum(ones, a, b);
        let (ones, second) = sum(ones, c, d);
        let (twos, low) = sum(twos, first, second);
        let (ones, first) = sum(ones, e, f);
        let (ones, second) = sum(ones, g, h);
        let (twos, high) = sum(twos, first, second);
        let (fours, mut carry) = sum(fours, low, high);
        [self.planes[0], self.planes[1], self.planes[2]] = [ones, twos, fours];
        for plane in &mut self.planes[3..] {
            if carry == 0 {
                break;
            }
            (*plane, carry) = (*plane ^ carry, *plane & carry);
        }
        self.waiting = [0; AT_ONCE];
    }

    /// The bits that are set in more than half of what was counted.
    fn outweigh(mut self) -> u64 {
        self.drain();
        let half = self.counted / 2;
        let (mut more, mut equal) = (0, u64::MAX);
        for (weight, plane) in self.planes.iter().enumerate().rev() {
            if half >> weight & 1 == 0 {
                more |= equal & plane;
                equal &= !plane;
            } else {
                equal &= plane;
            }
        }
        more
    }
}

/// The sum of three numbers bit by bit, and its carry.
const fn sum(one: u64, two: u64, three: u64) -> (u64, u64) {
    let differing = one ^ two;
    (differing ^ three, one & two | differing & three)
}

/// The SimHash of the shingles of a text in UTF-8, of no more than its first `words_max` words, and their number.
#[must_use]
pub fn simhash(text: &[u8], print: &Fingerprinter, words_max: usize) -> (u64, usize) {
    SimHasher::default().simhash(text, print, words_max)
}

/// Makes SimHashes of many texts in the same memory.
#[derive(Default)]
pub struct SimHasher {
    lowered: Vec<u8>,
    words: Vec<u64>,
    shingles: Shingles,
}

impl SimHasher {
    /// See `simhash`.
    pub fn simhash(
        &mut self,
        text: &[u8],
        print: &Fingerprinter,
        words_max: usize,
    ) -> (u64, usize) {
        self.words.clear();
        hash_words(text, print, words_max, &mut self.lowered, &mut self.words);
        let words = &self.words;
        match words.as_slice() {
            [] => (0, 0),
            [one] => (mixed(0, *one), 1),
            [one, two] => (mixed(mixed(0, *one), *two), 1),
            _ => {
                let hashes = words
                    .windows(SHINGLE_WORDS)
                    .map(|three| three.iter().fold(0, |all, word| mixed(all, *word)));
                self.shingles.simhash(hashes)
            }
        }
    }
}

/// Octets whose sorts stand in one number.
const BLOCK: usize = 64;

/// The hashes of the first words, letters of ASCII in lower case.
///
/// Bit by bit, a number says of 64 octets which belong to words; its edges are where words begin and end. The length of
/// a word is no branch so, which could not be foretold.
fn hash_words(
    text: &[u8],
    print: &Fingerprinter,
    words_max: usize,
    lowered: &mut Vec<u8>,
    words: &mut Vec<u64>,
) {
    if words_max == 0 {
        return;
    }
    // White space behind the end ends the last word, and lets `fingerprint_within` read on.
    let size = (text.len() / BLOCK + 2) * BLOCK;
    lowered.clear();
    lowered.reserve(size);
    lowered.extend_from_slice(text);
    lowered.make_ascii_lowercase();
    if !text.is_ascii() {
        blank_other_spaces(lowered);
    }
    lowered.resize(size, b' ');
    let (mut start, mut inside, mut before) = (0, false, 0);
    for (row, block) in lowered[..size - BLOCK].chunks_exact(BLOCK).enumerate() {
        let bits = bits_of_words(block);
        let mut edges = bits ^ (bits << 1 | before);
        before = bits >> (BLOCK - 1);
        while edges != 0 {
            let at = row * BLOCK + edges.trailing_zeros() as usize;
            edges &= edges - 1;
            if inside {
                words.push(print.fingerprint_within(lowered, start, at));
                if words.len() == words_max {
                    return;
                }
            }
            start = at;
            inside = !inside;
        }
    }
}

/// Writes blanks over white space beyond ASCII.
fn blank_other_spaces(text: &mut [u8]) {
    for block in (0..text.len()).step_by(BLOCK) {
        let end = text.len().min(block + BLOCK);
        if text[block..end].is_ascii() {
            continue;
        }
        if let Some(front) = text[block..].first_chunk_mut() {
            if !blank_common_spaces(front) {
                continue;
            }
        }
        for at in block..end {
            let width = other_space(&text[at..]);
            text[at..at + width].fill(b' ');
        }
    }
}

/// Writes blanks over white space of two octets, as good as all that texts have, and tells whether other one may begin
/// in a block: all octets together, without a branch for each. The last two may belong to what begins there.
fn blank_common_spaces(text: &mut [u8; BLOCK + 2]) -> bool {
    let before = *text;
    let mut begins = [false; BLOCK + 1];
    let mut others = false;
    for at in 0..BLOCK {
        let (first, second, third) = (before[at], before[at + 1], before[at + 2]);
        begins[at] = (first == 0xc2) & ((second == 0x85) | (second == 0xa0));
        others |= (first == 0xe1) & (second == 0x9a) & (third == 0x80);
        others |= (first == 0xe2) & (second == 0x80) & ((third <= 0x8a) | (third >= 0xa8));
        others |= (first == 0xe2) & (second == 0x81) & (third == 0x9f);
        others |= (first == 0xe3) & (second == 0x80) & (third == 0x80);
    }
    for at in 0..BLOCK {
        text[at] = if begins[at] { b' ' } else { text[at] };
    }
    for at in 0..BLOCK {
        text[at + 1] = if begins[at] { b' ' } else { text[at + 1] };
    }
    others
}

/// So many places of a table may be looked at for each hash: a text whose hashes crowd in few places is sorted.
const LOOKS_MAX: usize = 8;

/// Counts the bits of hashes, each hash once.
#[derive(Default)]
struct Shingles {
    /// Each hash where its high bits say, or behind that.
    places: Vec<u64>,
}

impl Shingles {
    fn simhash(&mut self, hashes: impl ExactSizeIterator<Item = u64> + Clone) -> (u64, usize) {
        self.counted(hashes.clone()).unwrap_or_else(|| {
            let mut sorted: Vec<u64> = hashes.collect();
            sorted.sort_unstable();
            sorted.dedup();
            let mut bits = Bits::new();
            sorted.iter().for_each(|hash| bits.count(*hash));
            (bits.outweigh(), sorted.len())
        })
    }

    /// None where they crowd, or one is 0, which stands for a free place.
    fn counted(&mut self, hashes: impl ExactSizeIterator<Item = u64>) -> Option<(u64, usize)> {
        let size = (2 * hashes.len()).next_power_of_two().max(2);
        let shift = 64 - size.trailing_zeros();
        self.places.clear();
        self.places.resize(size, 0);
        let mut left = LOOKS_MAX * hashes.len();
        let mut bits = Bits::new();
        for hash in hashes {
            let mut place = (hash >> shift) as usize;
            while self.places[place] != 0 && self.places[place] != hash && left > 0 {
                place = (place + 1) & (size - 1);
                left -= 1;
            }
            if left == 0 || hash == 0 {
                return None;
            }
            if self.places[place] == 0 {
                self.places[place] = hash;
                bits.count(hash);
            }
        }
        let counted = bits.counted as usize;
        Some((bits.outweigh(), counted))
    }
}

/// One hash of those before and the hash of a word.
#[inline]
const fn mixed(all: u64, word: u64) -> u64 {
    let mut value = all.wrapping_mul(MULTIPLIER).wrapping_add(word);
    value ^= value >> 32;
    value = value.wrapping_mul(MIXER);
    value ^ (value >> 32)
}

/// Marks the octets, of 64 in lower case, that belong to words, the first one lowest: all but ASCII that is neither
/// letter nor digit.
#[inline]
fn bits_of_words(block: &[u8]) -> u64 {
    let mut marks = [0_u8; BLOCK];
    for (mark, octet) in marks.iter_mut().zip(block) {
        let letter = octet.wrapping_sub(b'a') < 26;
        let digit = octet.wrapping_sub(b'0') < 10;
        *mark = u8::from(letter | digit | (*octet >= 0x80));
    }
    let mut bits = 0;
    for (row, eight) in marks.chunks_exact(8).enumerate() {
        let eight = eight.first_chunk().map_or(0, |eight| u64::from_le_bytes(*eight));
        // Brings the lowest bits of eight octets together in the highest one.
        bits |= (eight.wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * row);
    }
    bits
}

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
    fn bits_outweigh_that_are_set_in_more_than_half() {
        let mut state = 7_u64;
        for size in (0..70).chain([255, 256, 257, 1_000, 5_000]) {
            let hashes: Vec<u64> = (0..size)
                .map(|_| {
                    state = state.wrapping_mul(MIXER).wrapping_add(MULTIPLIER);
                    state ^ state >> 31 | u64::from(size > 250) << 63
                })
                .collect();
            let mut bits = Bits::new();
            hashes.iter().for_each(|hash| bits.count(*hash));
            let outweighs = |bit: u32| {
                2 * hashes.iter().filter(|hash| *hash >> bit & 1 == 1).count() > hashes.len()
            };
            let expected = (0..64).fold(0, |all, bit| all | u64::from(outweighs(bit)) << bit);
            assert_eq!(expected, bits.outweigh(), "{size}");
        }
    }

    #[test]
    fn each_hash_is_counted_once_however_they_crowd() {
        for step in [0, 1, 3, 1 << 52, MULTIPLIER] {
            let some: Vec<u64> =
                (0..1_000).chain(0..1_000).map(|n: u64| n.wrapping_mul(step)).collect();
            let mut sorted = some.clone();
            sorted.sort_unstable();
            sorted.dedup();
            let mut bits = Bits::new();
            sorted.iter().for_each(|hash| bits.count(*hash));
            let expected = (bits.outweigh(), sorted.len());
            assert_eq!(expected, Shingles::default().simhash(some.iter().copied()), "{step}");
        }
        assert_eq!((7, 1), Shingles::default().simhash([7, 7, 7].into_iter()));
    }

    #[test]
    fn the_memory_of_texts_before_changes_nothing() {
        let mut hasher = SimHasher::default();
        for text in
            ["a b c d e f g", "one two", "", "x", "a b c d", "\u{e9}\u{3000}b c d e f g h i"]
        {
            let alone = simhash(text.as_bytes(), &print(), 9);
            assert_eq!(alone, hasher.simhash(text.as_bytes(), &print(), 9));
        }
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
