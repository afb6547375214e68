//! The last part of the body of a card: the fields of a record that have a value.

use crate::backlog::{EXTRA_BYTES, HEAD_BYTES, REFERRER_BYTES, URL_BYTES};
use crate::siphash::Fingerprinter;

const FLAGS: usize = 65;
const HAS_CONTENT: u8 = 1;

/// A field of a record: the letter by which a body names it, and whether its values are texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// A letter from a to z.
    pub name: u8,
    /// Texts in UTF-8; other values are octets.
    pub is_text: bool,
}

/// The fields of a declaration such as `d:bytes t:str`; None where it is none, or the first has no octets.
pub fn fields_of(declared: &str) -> Option<Vec<Field>> {
    let mut found: Vec<Field> = Vec::new();
    for one in declared.split(' ') {
        let (name, kind) = one.split_once(':')?;
        let (&[name @ b'a'..=b'z'], "bytes" | "str") = (name.as_bytes(), kind) else {
            return None;
        };
        if found.iter().any(|other| other.name == name) {
            return None;
        }
        found.push(Field { name, is_text: kind == "str" });
    }
    (!found.first()?.is_text).then_some(found)
}

/// Cards under construction.
pub struct Cards {
    fields: Vec<Field>,
    /// Heads, one after the other.
    pub heads: Vec<u8>,
    /// Bodies, one after the other.
    pub arena: Vec<u8>,
}

impl Cards {
    /// No cards yet. fields: those of each card; the first contains the digest of the content.
    pub fn new(fields: Vec<Field>) -> Self {
        Self { fields, heads: Vec::new(), arena: Vec::new() }
    }

    /// Adds a card with this head, the URL and referrer that begin in `bodies` at `start`, and these values, one per
    /// field, empty for none. content: the hash of a content without a digest, 0 for none. Returns where its body ends;
    /// None where `bodies` does not hold URL and referrer, or the values are too long.
    pub fn add(
        &mut self,
        head: &[u8; HEAD_BYTES],
        bodies: &[u8],
        start: i64,
        values: &[&[u8]],
        content: u64,
        print: &Fingerprinter,
    ) -> Option<usize> {
        let length = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
        let kept = length(URL_BYTES) + length(REFERRER_BYTES);
        let body = bodies.get(usize::try_from(start).ok()?..)?.get(..kept)?;
        self.arena.extend_from_slice(body);
        let begin = self.arena.len();
        let content = match values {
            [] | [[], ..] => content,
            [digest, ..] => content_of(digest, print),
        };
        if content != 0 {
            self.arena.extend_from_slice(&content.to_le_bytes());
        }
        pack(&self.fields, values, &mut self.arena)?;
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
fn pack(fields: &[Field], values: &[&[u8]], out: &mut Vec<u8>) -> Option<()> {
    let pairs = fields.iter().zip(values);
    let there = pairs.filter(|(_, value)| !value.is_empty());
    let count = there.clone().count() as u8;
    match count {
        0 => (),
        1..16 => out.push(0x80 | count),
        _ => out.extend_from_slice(&[0xde, 0, count]),
    }
    for (field, value) in there {
        let [by_u8, by_u16, by_u32] = match field.is_text {
            true => [0xd9, 0xda, 0xdb],
            false => [0xc4, 0xc5, 0xc6],
        };
        out.extend_from_slice(&[0xa1, field.name]);
        let size = u32::try_from(value.len()).ok()?;
        let bytes = size.to_be_bytes();
        match size {
            0..32 if field.is_text => out.push(0xa0 | bytes[3]),
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
