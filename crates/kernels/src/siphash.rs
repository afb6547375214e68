//! Keyed 64-bit fingerprints of texts: SipHash-1-3 (Aumasson and Bernstein 2012, with fewer rounds).

use siphasher::sip::SipHasher13;

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;

/// Hashes messages under one key.
pub struct Fingerprinter {
    hasher: SipHasher13,
    state: [u64; 4],
}

impl Fingerprinter {
    /// A fingerprinter for one store's key.
    #[must_use]
    pub fn new(key: &[u8; KEY_BYTES]) -> Self {
        let [low, high] = [0, 8].map(|at| word_at(key, at));
        let state = [
            low ^ 0x736f_6d65_7073_6575,
            high ^ 0x646f_7261_6e64_6f6d,
            low ^ 0x6c79_6765_6e65_7261,
            high ^ 0x7465_6462_7974_6573,
        ];
        Self { hasher: SipHasher13::new_with_key(key), state }
    }

    /// The SipHash-1-3 of `octets[start..end]`, for many short parts of one text: as `fingerprint`, but without a branch
    /// for each of the last bytes. `octets` has eight more behind `end`.
    #[must_use]
    #[inline]
    pub fn fingerprint_within(&self, octets: &[u8], start: usize, end: usize) -> u64 {
        let mut state = self.state;
        let mut at = start;
        while at + 8 <= end {
            take(&mut state, word_at(octets, at));
            at += 8;
        }
        let last = word_at(octets, at) & ((1 << (8 * (end - at))) - 1);
        take(&mut state, last | ((end - start) as u64) << 56);
        state[2] ^= 0xff;
        for _ in 0..3 {
            round(&mut state);
        }
        state[0] ^ state[1] ^ state[2] ^ state[3]
    }

    /// The SipHash-1-3 of the message's bytes.
    #[must_use]
    pub fn fingerprint(&self, message: &[u8]) -> u64 {
        self.hasher.hash(message)
    }

    /// Appends the fingerprint of each message to `out`, as little-endian u64.
    pub fn fingerprints<'a>(
        &self,
        messages: impl IntoIterator<Item = &'a [u8]>,
        out: &mut Vec<u8>,
    ) {
        for message in messages {
            out.extend_from_slice(&self.fingerprint(message).to_le_bytes());
        }
    }

    /// The same of each message up to its first `mark`; 0 for a message without one.
    pub fn fingerprints_until<'a>(
        &self,
        mark: u8,
        messages: impl IntoIterator<Item = &'a [u8]>,
        out: &mut Vec<u8>,
    ) {
        for message in messages {
            let print =
                memchr::memchr(mark, message).map_or(0, |at| self.fingerprint(&message[..at]));
            out.extend_from_slice(&print.to_le_bytes());
        }
    }
}

/// Eight octets as a number; 0 where there are fewer.
#[inline]
fn word_at(octets: &[u8], at: usize) -> u64 {
    octets[at..].first_chunk().map_or(0, |octets| u64::from_le_bytes(*octets))
}

#[inline]
fn take(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    state[0] ^= word;
}

#[inline]
fn round([v0, v1, v2, v3]: &mut [u64; 4]) {
    *v0 = v0.wrapping_add(*v1);
    *v2 = v2.wrapping_add(*v3);
    *v1 = v1.rotate_left(13) ^ *v0;
    *v3 = v3.rotate_left(16) ^ *v2;
    *v0 = v0.rotate_left(32);
    *v2 = v2.wrapping_add(*v1);
    *v0 = v0.wrapping_add(*v3);
    *v1 = v1.rotate_left(17) ^ *v2;
    *v3 = v3.rotate_left(21) ^ *v0;
    *v2 = v2.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting_key() -> [u8; KEY_BYTES] {
        std::array::from_fn(|place| place as u8)
    }

    #[test]
    fn the_published_vectors_hold() {
        // Key 00 01 … 0f, messages "", 00, 00 01: as the hash of Rust's standard library has them.
        let expected = [0xabac_0158_050f_c4dc_u64, 0xc9f4_9bf3_7d57_ca93, 0x82cb_9b02_4dc7_d44d];
        let print = Fingerprinter::new(&counting_key());
        let actual: [u64; 3] = std::array::from_fn(|size| {
            let message: Vec<u8> = (0..size as u8).collect();
            print.fingerprint(&message)
        });
        assert_eq!(expected, actual);
    }

    #[test]
    fn a_part_of_a_text_is_hashed_as_it_stands_alone() {
        let print = Fingerprinter::new(&counting_key());
        let text: Vec<u8> = (0..90).map(|octet: u8| octet.wrapping_mul(37)).collect();
        for start in 0..40 {
            for end in start..=text.len() - 8 {
                let alone = print.fingerprint(&text[start..end]);
                assert_eq!(alone, print.fingerprint_within(&text, start, end));
            }
        }
    }

    #[test]
    fn a_batch_is_its_messages_one_after_the_other() {
        let print = Fingerprinter::new(&counting_key());
        let messages: [&[u8]; 2] = [b"http://example.org/", b""];
        let mut out = Vec::new();
        print.fingerprints(messages, &mut out);
        let expected: Vec<u8> =
            messages.iter().flat_map(|message| print.fingerprint(message).to_le_bytes()).collect();
        assert_eq!(expected, out);
    }
}
