//! Keyed 64-bit fingerprints of texts: SipHash-1-3 (Aumasson and Bernstein 2012, with fewer rounds).

use siphasher::sip::SipHasher13;

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;

/// Hashes messages under one key.
pub struct Fingerprinter(SipHasher13);

impl Fingerprinter {
    /// A fingerprinter for one store's key.
    #[must_use]
    pub fn new(key: &[u8; KEY_BYTES]) -> Self {
        Self(SipHasher13::new_with_key(key))
    }

    /// The SipHash-1-3 of the message's bytes.
    #[must_use]
    pub fn fingerprint(&self, message: &[u8]) -> u64 {
        self.0.hash(message)
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
