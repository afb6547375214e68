//! A Bloom filter of blocks (Putze, Sanders, Singler 2007, "Cache-, hash- and space-efficient Bloom filters"): all bits
//! of a key are in one line of 64 bytes, so a look-up is one cache miss. Keys are looked up together, so that their
//! cache misses overlap.

const WORDS: usize = 8;
const ABREAST: usize = 32;
const FINGERPRINT: u64 = (1 << 56) - 1;
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// The most bits of a key.
pub const BITS_PER_KEY_MAX: u32 = 16;

/// A filter of keys (slot, fingerprint).
pub struct BlockedBloom {
    /// The lines, from `start` on: a line begins at a multiple of 64 bytes.
    words: Vec<u64>,
    start: usize,
    lines: u64,
    hashes: u32,
    keys: u64,
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
    /// An empty filter. lines: its number of 64-byte lines. hashes: the number of bits for each key.
    #[must_use]
    pub fn new(lines: u64, hashes: u32) -> Self {
        let words = vec![0_u64; lines as usize * WORDS + WORDS - 1];
        let start = words.as_ptr().align_offset(64).min(WORDS - 1);
        Self { words, start, lines, hashes, keys: 0 }
    }

    fn line(&self, hash: u64) -> usize {
        self.start + ((u128::from(hash) * u128::from(self.lines)) >> 64) as usize * WORDS
    }

    /// The lines of some keys, all read before one is used.
    fn approach(&self, slots: &[u16], fingerprints: &[u64]) -> [(usize, u64); ABREAST] {
        let mut places = [(0, 0); ABREAST];
        let mut seen = 0;
        for (place, (&slot, &print)) in places.iter_mut().zip(slots.iter().zip(fingerprints)) {
            let (first, second) = hashed(slot, print);
            *place = (self.line(first), second);
            seen ^= self.words[place.0];
        }
        std::hint::black_box(seen);
        places
    }

    /// Adds keys.
    pub fn add(&mut self, slots: &[u16], fingerprints: &[u64]) {
        for (slots, prints) in slots.chunks(ABREAST).zip(fingerprints.chunks(ABREAST)) {
            for &(line, mut bits) in &self.approach(slots, prints)[..slots.len()] {
                let line = &mut self.words[line..line + WORDS];
                for _ in 0..self.hashes {
                    line[(bits >> 61) as usize] |= 1 << (bits >> 55 & 63);
                    bits = bits.wrapping_mul(SPREAD);
                }
            }
        }
        self.keys += slots.len() as u64;
    }

    /// 1 for each key that may have been added, 0 for each that was not.
    #[must_use]
    pub fn check(&self, slots: &[u16], fingerprints: &[u64]) -> Vec<u8> {
        let mut found = Vec::with_capacity(slots.len());
        for (slots, prints) in slots.chunks(ABREAST).zip(fingerprints.chunks(ABREAST)) {
            for &(line, mut bits) in &self.approach(slots, prints)[..slots.len()] {
                let line = &self.words[line..line + WORDS];
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

    /// How many keys were added, the same key as often as it was.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.keys
    }

    /// Whether no key was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys == 0
    }

    /// Bits of the lines.
    #[must_use]
    pub fn bits(&self) -> u64 {
        self.lines * 512
    }

    /// Bits of each key.
    #[must_use]
    pub fn hashes(&self) -> u32 {
        self.hashes
    }
}
