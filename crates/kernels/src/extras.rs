//! The last parts of the bodies of cards: what was found at a URL, and what its holder told of it.

use crate::backlog::{EXTRA_BYTES, HEAD_BYTES, REFERRER_BYTES, URL_BYTES};
use crate::siphash::Fingerprinter;

const FLAGS: usize = 65;
const HAS_CONTENT: u8 = 1;

/// The values of a card. content: the hash of what was found there where no digest says it, 0 for none.
pub struct Values<'a> {
    /// The digest of the content; empty for none, as each of the others.
    pub digest: &'a [u8],
    /// The ETag, in UTF-8.
    pub etag: &'a [u8],
    /// The Last-Modified, in UTF-8.
    pub modified: &'a [u8],
    /// Metadata, in JSON.
    pub metadata: &'a [u8],
    /// The hash of the content where there is no digest, 0 for none.
    pub content: u64,
}

/// Cards under construction.
#[derive(Default)]
pub struct Cards {
    /// Heads, one after the other.
    pub heads: Vec<u8>,
    /// Bodies, one after the other.
    pub arena: Vec<u8>,
}

impl Cards {
    /// Adds a card with this head, the URL and referrer that begin in `bodies` at `start`, and these values. Where its
    /// body ends; None where `bodies` does not hold URL and referrer, or the values are too long.
    pub fn add(
        &mut self,
        head: &[u8; HEAD_BYTES],
        bodies: &[u8],
        start: i64,
        values: &Values<'_>,
        print: &Fingerprinter,
    ) -> Option<usize> {
        let length = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
        let kept = length(URL_BYTES) + length(REFERRER_BYTES);
        let body = bodies.get(usize::try_from(start).ok()?..)?.get(..kept)?;
        self.arena.extend_from_slice(body);
        let begin = self.arena.len();
        let content = match values.digest {
            [] => values.content,
            digest => content_of(digest, print),
        };
        if content != 0 {
            self.arena.extend_from_slice(&content.to_le_bytes());
        }
        pack(values, &mut self.arena)?;
        let extra_bytes = u32::try_from(self.arena.len() - begin).ok()?;
        let at = self.heads.len();
        self.heads.extend_from_slice(head);
        self.heads[at + EXTRA_BYTES..][..4].copy_from_slice(&extra_bytes.to_le_bytes());
        if content != 0 {
            self.heads[at + FLAGS] |= HAS_CONTENT;
        }
        Some(self.arena.len())
    }
}

/// The hash by which a content is known: of the characters U+0000 to U+00FF whose numbers are the digest's bytes.
fn content_of(digest: &[u8], print: &Fingerprinter) -> u64 {
    let hash = if digest.is_ascii() {
        print.fingerprint(digest)
    } else {
        let text: String = digest.iter().map(|&octet| char::from(octet)).collect();
        print.fingerprint(text.as_bytes())
    };
    hash.max(1)
}

/// A map of MessagePack of the values that are there; nothing where there are none. None for one that is too long.
fn pack(values: &Values<'_>, out: &mut Vec<u8>) -> Option<()> {
    let octets = [0xc4, 0xc5, 0xc6];
    let texts = [0xd9, 0xda, 0xdb];
    let named = [
        (b'd', values.digest, octets),
        (b't', values.etag, texts),
        (b'l', values.modified, texts),
        (b'm', values.metadata, octets),
    ];
    let there = named.into_iter().filter(|(_, value, _)| !value.is_empty());
    let count = there.clone().count() as u8;
    if count != 0 {
        out.push(0x80 | count);
    }
    for (name, value, [by_u8, by_u16, by_u32]) in there {
        out.extend_from_slice(&[0xa1, name]);
        let size = u32::try_from(value.len()).ok()?;
        let bytes = size.to_be_bytes();
        match size {
            0..32 if by_u8 == texts[0] => out.push(0xa0 | bytes[3]),
            0..0x100 => out.extend_from_slice(&[by_u8, bytes[3]]),
            0x100..0x1_0000 => out.extend_from_slice(&[by_u16, bytes[2], bytes[3]]),
            _ => {
                out.push(by_u32);
                out.extend_from_slice(&bytes);
            }
        }
        out.extend_from_slice(value);
    }
    Some(())
}
