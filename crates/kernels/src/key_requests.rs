//! Requests about keys that are answered together with the sorted rows of their range, as DRUM does it for a bucket.
//!
//! A request is | key u64 | value u64 | operation u8 | payload |, a row of a run is | key u64 | value u64 |, all little
//! endian. A layout without values has neither of both.

use crate::key_pages::sorted_rows;

/// The kinds of requests: the least and the greatest.
pub const OPERATIONS: std::ops::RangeInclusive<u8> = CHECK..=APPEND;
const CHECK: u8 = 1;
const APPEND: u8 = 4;
/// A sorted row: the key above the place (32 bits) and the operation (8 bits).
const KEY_SHIFT: u32 = 40;
const PLACE_SHIFT: u32 = 8;

/// The sizes of requests and rows.
#[derive(Clone, Copy)]
pub struct Layout {
    /// Bytes of the payload of a request.
    pub payload_bytes: usize,
    /// Whether requests and rows have values; otherwise all values are 0.
    pub valued: bool,
}

impl Layout {
    /// Bytes of a row.
    #[must_use]
    pub fn row_bytes(self) -> usize {
        if self.valued {
            16
        } else {
            8
        }
    }

    /// Bytes of a request.
    #[must_use]
    pub fn request_bytes(self) -> usize {
        self.row_bytes() + 1 + self.payload_bytes
    }

    /// The value of a request or of a row.
    fn value(self, octets: &[u8]) -> u64 {
        if self.valued {
            number_at(octets, 8)
        } else {
            0
        }
    }
}

fn number_at(octets: &[u8], at: usize) -> u64 {
    let mut found = [0; 8];
    found.copy_from_slice(&octets[at..at + 8]);
    u64::from_le_bytes(found)
}

/// Why requests are not answered.
pub enum Fault {
    /// The request at this place has this operation, which is unknown.
    Operation(usize, u8),
    /// The keys of this block do not ascend.
    Order(usize),
}

/// Columns with one number for each request, and rows to be written.
pub struct Answers {
    /// Whether the key was there before the request.
    pub known: Vec<u8>,
    /// The value of the key then, u64.
    pub values: Vec<u8>,
    /// Rows that ascend.
    pub rows: Vec<u8>,
}

/// A key of requests: what is known about it after those that were answered.
struct Asked {
    key: u64,
    value: u64,
    known: bool,
    changed: bool,
}

/// Answers requests in their order. blocks: rows that ascend within a block; a later block replaces an earlier one.
/// The rows of the answer ascend: those of the keys that changed and, with `whole`, of all others, too. Sizes must fit
/// the layout, and there are less than 2^32 requests.
pub fn answer(
    requests: &[u8],
    layout: Layout,
    blocks: &[&[u8]],
    whole: bool,
) -> Result<Answers, Fault> {
    let (size, count) = (layout.request_bytes(), requests.len() / layout.request_bytes());
    let mut ordered = Vec::with_capacity(count);
    for (place, request) in requests.chunks_exact(size).enumerate() {
        let operation = request[layout.row_bytes()];
        if !OPERATIONS.contains(&operation) {
            return Err(Fault::Operation(place, operation));
        }
        let key = u128::from(number_at(request, 0)) << KEY_SHIFT;
        ordered.push(key | (place as u128) << PLACE_SHIFT | u128::from(operation));
    }
    let ordered = sorted_rows(ordered);
    let mut asked: Vec<Asked> = Vec::new();
    for row in &ordered {
        let key = (row >> KEY_SHIFT) as u64;
        if asked.last().is_none_or(|last| last.key != key) {
            asked.push(Asked { key, value: 0, known: false, changed: false });
        }
    }
    let mut rows = Vec::new();
    for (number, block) in blocks.iter().enumerate() {
        find(block, layout, &mut asked, whole.then_some(&mut rows)).ok_or(Fault::Order(number))?;
    }
    let (mut known, mut values) = (vec![0; count], vec![0; 8 * count]);
    let mut at = 0;
    for row in ordered {
        let (key, place) = ((row >> KEY_SHIFT) as u64, (row >> PLACE_SHIFT) as u32 as usize);
        if asked[at].key != key {
            at += 1;
        }
        let one = &mut asked[at];
        known[place] = u8::from(one.known);
        values[8 * place..8 * place + 8].copy_from_slice(&one.value.to_le_bytes());
        let operation = row as u8;
        if operation != CHECK {
            let given = layout.value(&requests[place * size..]);
            one.value = if operation == APPEND { one.value.wrapping_add(given) } else { given };
            one.known = true;
            one.changed = true;
        }
    }
    rows.extend(asked.iter().filter(|one| one.changed).map(|one| (one.key, one.value)));
    if whole {
        rows.sort_by_key(|&(key, _)| key); // it is stable, and merges parts that ascend
    }
    Ok(Answers { known, values, rows: newest(&rows, layout) })
}

/// Marks the keys that a block has, and keeps its rows. None if they do not ascend.
fn find(
    block: &[u8],
    layout: Layout,
    asked: &mut [Asked],
    mut kept: Option<&mut Vec<(u64, u64)>>,
) -> Option<()> {
    let mut before = None;
    let mut at = block.get(..8).map_or(0, |first| {
        let first = number_at(first, 0);
        asked.partition_point(|one| one.key < first)
    });
    for row in block.chunks_exact(layout.row_bytes()) {
        let (key, value) = (number_at(row, 0), layout.value(row));
        if before.is_some_and(|before| before >= key) {
            return None;
        }
        before = Some(key);
        while asked.get(at).is_some_and(|one| one.key < key) {
            at += 1;
        }
        if let Some(one) = asked.get_mut(at).filter(|one| one.key == key) {
            (one.known, one.value) = (true, value);
        }
        if let Some(rows) = &mut kept {
            rows.push((key, value));
        }
    }
    Some(())
}

/// The last one of the rows with the same key, as bytes.
fn newest(rows: &[(u64, u64)], layout: Layout) -> Vec<u8> {
    let mut octets = Vec::with_capacity(rows.len() * layout.row_bytes());
    for (at, (key, value)) in rows.iter().enumerate() {
        if rows.get(at + 1).is_some_and(|next| next.0 == *key) {
            continue;
        }
        octets.extend_from_slice(&key.to_le_bytes());
        if layout.valued {
            octets.extend_from_slice(&value.to_le_bytes());
        }
    }
    octets
}
