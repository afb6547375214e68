//! A Bloom filter of blocks (Putze, Sanders, Singler 2007, "Cache-, hash- and space-efficient Bloom filters"): all bits
//! of a key are in one line of 64 bytes, so a look-up is one cache miss. Keys are looked up together, so that their
//! cache misses overlap.
//!
//! The lines are in parts, each for a range of keys. A part is replaced by larger ones on its own, so only one part
//! ever exists twice.

const WORDS: usize = 8;
const ABREAST: usize = 32;
const FINGERPRINT: u64 = (1 << 56) - 1;
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// The most bits of a key.
pub const BITS_PER_KEY_MAX: u32 = 16;

/// The lines for a range of keys.
struct Part {
    /// The lines, from `start` on: a line begins at a multiple of 64 bytes.
    words: Vec<u64>,
    start: usize,
    lines: u64,
    keys: u64,
}

impl Part {
    fn new(lines: u64) -> Self {
        let words = vec![0_u64; lines as usize * WORDS + WORDS - 1];
        let start = words.as_ptr().align_offset(64).min(WORDS - 1);
        Self { words, start, lines, keys: 0 }
    }

    fn line(&self, hash: u64) -> usize {
        self.start + ((u128::from(hash) * u128::from(self.lines)) >> 64) as usize * WORDS
    }
}

/// Parts in the order of their keys.
struct Parts {
    /// The upper 64 of the 68 bits of the first key of each part. The first part also has all keys below its own.
    firsts: Vec<u64>,
    parts: Vec<Part>,
}

/// A place of a key: its part, its line there, and the number that chooses its bits.
type Place = (usize, usize, u64);

impl Parts {
    fn new(firsts: &[u64], lines: &[u64]) -> Self {
        let parts = lines.iter().map(|&lines| Part::new(lines)).collect();
        Self { firsts: firsts.to_vec(), parts }
    }

    fn lines(&self) -> u64 {
        self.parts.iter().map(|part| part.lines).sum()
    }

    fn keys(&self) -> u64 {
        self.parts.iter().map(|part| part.keys).sum()
    }

    /// The places of some keys, whose lines are all read before one is used.
    fn approach(&self, slots: &[u16], fingerprints: &[u64]) -> [Place; ABREAST] {
        let mut places = [(0, 0, 0); ABREAST];
        let mut seen = 0;
        for (place, (&slot, &print)) in places.iter_mut().zip(slots.iter().zip(fingerprints)) {
            let (first, second) = hashed(slot, print);
            let prefix = u64::from(slot) << 52 | (print & FINGERPRINT) >> 4;
            let part = self.firsts[1..].partition_point(|&first| first <= prefix);
            *place = (part, self.parts[part].line(first), second);
            seen ^= self.parts[part].words[place.1];
        }
        std::hint::black_box(seen);
        places
    }

    fn add(&mut self, slots: &[u16], fingerprints: &[u64], hashes: u32) {
        for (slots, prints) in slots.chunks(ABREAST).zip(fingerprints.chunks(ABREAST)) {
            for &(part, line, mut bits) in &self.approach(slots, prints)[..slots.len()] {
                let part = &mut self.parts[part];
                let line = &mut part.words[line..line + WORDS];
                for _ in 0..hashes {
                    line[(bits >> 61) as usize] |= 1 << (bits >> 55 & 63);
                    bits = bits.wrapping_mul(SPREAD);
                }
                part.keys += 1;
            }
        }
    }
}

/// A filter of keys (slot, fingerprint).
pub struct BlockedBloom {
    parts: Parts,
    /// The place of a part, and those that are filled to replace it.
    larger: Option<(usize, Parts)>,
    hashes: u32,
}

/// Two numbers of a key: the first chooses its line, the second its bits.
fn hashed(slot: u16, fingerprint: u64) -> (u64, u64) {
    let mut mixed = (fingerprint & FINGERPRINT) ^ u64::from(slot).wrapping_mul(SPREAD);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    (mixed, mixed.wrapping_mul(SPREAD) ^ mixed >> 29)
}

impl BlockedBloom {
    /// An empty filter of one part. lines: its number of 64-byte lines. hashes: the number of bits for each key.
    #[must_use]
    pub fn new(lines: u64, hashes: u32) -> Self {
        Self { parts: Parts::new(&[0], &[lines]), larger: None, hashes }
    }

    /// Adds keys.
    pub fn add(&mut self, slots: &[u16], fingerprints: &[u64]) {
        self.parts.add(slots, fingerprints, self.hashes);
    }

    /// 1 for each key that may have been added, 0 for each that was not.
    #[must_use]
    pub fn check(&self, slots: &[u16], fingerprints: &[u64]) -> Vec<u8> {
        let mut found = Vec::with_capacity(slots.len());
        for (slots, prints) in slots.chunks(ABREAST).zip(fingerprints.chunks(ABREAST)) {
            for &(part, line, mut bits) in &self.parts.approach(slots, prints)[..slots.len()] {
                let line = &self.parts.parts[part].words[line..line + WORDS];
                let mut all = 1;
                for _ in 0..self.hashes {
                    all &= line[(bits >> 61) as usize] >> (bits >> 55 & 63);
                    bits = bits.wrapping_mul(SPREAD);
                }
                found.push(all as u8);
            }
        }
        found
    }

    /// Begins to replace a part by empty ones: the first keys of these (the upper 64 bits), which ascend from the first
    /// key of the part, and their lines.
    pub fn begin(&mut self, part: usize, firsts: &[u64], lines: &[u64]) {
        self.larger = Some((part, Parts::new(firsts, lines)));
    }

    /// Adds keys of the part that is replaced to the new ones. False if no part is replaced.
    pub fn fill(&mut self, slots: &[u16], fingerprints: &[u64]) -> bool {
        let Some((_, parts)) = &mut self.larger else { return false };
        parts.add(slots, fingerprints, self.hashes);
        true
    }

    /// The new parts replace the old one. False if no part is replaced.
    pub fn replace(&mut self) -> bool {
        let Some((part, new)) = self.larger.take() else { return false };
        self.parts.firsts.splice(part..=part, new.firsts);
        self.parts.parts.splice(part..=part, new.parts);
        true
    }

    /// Forgets the new parts.
    pub fn abandon(&mut self) {
        self.larger = None;
    }

    /// The first key of each part (the upper 64 bits), its keys and its lines.
    #[must_use]
    pub fn parts(&self) -> (Vec<u64>, Vec<u64>, Vec<u64>) {
        let keys = self.parts.parts.iter().map(|part| part.keys).collect();
        (self.parts.firsts.clone(), keys, self.parts.parts.iter().map(|part| part.lines).collect())
    }

    /// How many keys were added, the same key as often as it was.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.parts.keys()
    }

    /// Whether no key was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lines of all parts, and of those that are filled to replace one.
    #[must_use]
    pub fn lines(&self) -> (u64, u64) {
        (self.parts.lines(), self.larger.as_ref().map_or(0, |(_, parts)| parts.lines()))
    }

    /// Bits of each key.
    #[must_use]
    pub fn hashes(&self) -> u32 {
        self.hashes
    }
}
