//! Sorted keys (slot, 56 bits of a fingerprint) in pages of 4,096 bytes, as differences of one width for each page.
//!
//! | crc32c of the rest u32 | number u32 | keys u16 | width u8 | 0 u8 | slot of the first key u16 | its fingerprint, 8
//! bytes | 2 zeros | differences, `width` bits each, the lowest bit first |, all little endian. A page begins with its
//! number, so a page that is read from the wrong place is noticed.

use crate::framing::crc32c;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4_096;
const HEAD_BYTES: usize = 24;
const BITS: usize = 8 * (PAGE_BYTES - HEAD_BYTES);
const FINGERPRINT: u64 = (1 << 56) - 1;
/// Bytes after a page, so that 16 bytes can be read at any difference.
const SLACK: usize = 16;

fn key_of(slot: u16, fingerprint: u64) -> u128 {
    u128::from(slot) << 56 | u128::from(fingerprint & FINGERPRINT)
}

fn keys_of(slots: &[u16], fingerprints: &[u64]) -> Vec<u128> {
    slots.iter().zip(fingerprints).map(|(&slot, &print)| key_of(slot, print)).collect()
}

fn columns_of(keys: &[u128]) -> (Vec<u16>, Vec<u64>) {
    let slots = keys.iter().map(|key| (key >> 56) as u16).collect();
    (slots, keys.iter().map(|&key| key as u64 & FINGERPRINT).collect())
}

/// The keys in ascending order, each once. Parts that ascend already are merged, not sorted.
#[must_use]
pub fn sort_keys(slots: &[u16], fingerprints: &[u64]) -> (Vec<u16>, Vec<u64>) {
    let mut keys = keys_of(slots, fingerprints);
    keys.sort();
    keys.dedup();
    columns_of(&keys)
}

/// The place of the first key that does not ascend, if any.
#[must_use]
pub fn descends(slots: &[u16], fingerprints: &[u64]) -> Option<usize> {
    let key = |at: usize| key_of(slots[at], fingerprints[at]);
    (1..slots.len()).find(|&at| key(at - 1) >= key(at))
}

/// Pages of ascending keys, numbered from `first`, and how many keys they contain: all, or with `whole` false only those
/// of pages that are full.
#[must_use]
pub fn pack(slots: &[u16], fingerprints: &[u64], first: u32, whole: bool) -> (Vec<u8>, usize) {
    let keys = keys_of(slots, fingerprints);
    let mut pages = Vec::with_capacity(keys.len() * 6 + PAGE_BYTES);
    let (mut at, mut number) = (0, first);
    while at < keys.len() {
        let (mut width, mut end) = (1, at + 1);
        while end < keys.len() {
            let bits = (128 - (keys[end] - keys[end - 1]).leading_zeros()) as usize;
            let wider = width.max(bits);
            if (end - at) * wider > BITS {
                break;
            }
            (width, end) = (wider, end + 1);
        }
        if end == keys.len() && !whole {
            break;
        }
        pack_page(&keys[at..end], width, number, &mut pages);
        (at, number) = (end, number.wrapping_add(1));
    }
    (pages, at)
}

fn pack_page(keys: &[u128], width: usize, number: u32, pages: &mut Vec<u8>) {
    let start = pages.len();
    pages.extend_from_slice(&[0; 4]);
    pages.extend_from_slice(&number.to_le_bytes());
    pages.extend_from_slice(&(keys.len() as u16).to_le_bytes());
    pages.extend_from_slice(&[width as u8, 0]);
    pages.extend_from_slice(&((keys[0] >> 56) as u16).to_le_bytes());
    pages.extend_from_slice(&(keys[0] as u64 & FINGERPRINT).to_le_bytes());
    pages.extend_from_slice(&[0; 2]);
    let (mut gathered, mut filled) = (0_u128, 0);
    for pair in keys.windows(2) {
        gathered |= (pair[1] - pair[0]) << filled;
        filled += width;
        while filled >= 32 {
            pages.extend_from_slice(&(gathered as u32).to_le_bytes());
            gathered >>= 32;
            filled -= 32;
        }
    }
    pages.extend_from_slice(&(gathered as u32).to_le_bytes()[..filled.div_ceil(8)]);
    pages.resize(start + PAGE_BYTES, 0);
    let sum = crc32c(0, &pages[start + 4..]);
    pages[start..start + 4].copy_from_slice(&sum.to_le_bytes());
}

fn number_at<const N: usize>(octets: &[u8], at: usize) -> [u8; N] {
    let mut found = [0; N];
    found.copy_from_slice(&octets[at..at + N]);
    found
}

/// Appends the keys of a page; false if the page is damaged or has another number.
fn unpack_page(page: &[u8], number: u32, keys: &mut Vec<u128>) -> bool {
    let sum = u32::from_le_bytes(number_at(page, 0));
    let (count, width) =
        (usize::from(u16::from_le_bytes(number_at(page, 8))), usize::from(page[10]));
    let sound = crc32c(0, &page[4..]) == sum
        && u32::from_le_bytes(number_at(page, 4)) == number
        && count > 0
        && (1..=68).contains(&width)
        && (count - 1) * width <= BITS;
    if !sound {
        return false;
    }
    let slot = u16::from_le_bytes(number_at(page, 12));
    let mut key = key_of(slot, u64::from_le_bytes(number_at(page, 14)));
    let mut padded = [0; PAGE_BYTES + SLACK];
    padded[..PAGE_BYTES].copy_from_slice(page);
    keys.reserve(count);
    keys.push(key);
    let mut bit = 8 * HEAD_BYTES;
    if width <= 57 {
        let mask = (1 << width) - 1;
        for _ in 1..count {
            let word = u64::from_le_bytes(number_at(&padded, bit >> 3));
            key += u128::from(word >> (bit & 7) & mask);
            keys.push(key);
            bit += width;
        }
    } else {
        let mask = (1 << width) - 1;
        for _ in 1..count {
            let word = u128::from_le_bytes(number_at(&padded, bit >> 3));
            key += word >> (bit & 7) & mask;
            keys.push(key);
            bit += width;
        }
    }
    true
}

/// The keys of pages with these numbers. The place of a page that is damaged is an error.
pub fn unpack(pages: &[u8], numbers: &[u32]) -> Result<(Vec<u16>, Vec<u64>), usize> {
    let mut keys = Vec::new();
    for (place, (page, &number)) in pages.chunks_exact(PAGE_BYTES).zip(numbers).enumerate() {
        if !unpack_page(page, number, &mut keys) {
            return Err(place);
        }
    }
    Ok(columns_of(&keys))
}

/// 1 for each of these ascending keys that is in one of these pages, which ascend too; 0 for the others. The place of a
/// page that is damaged is an error.
pub fn find(
    pages: &[u8],
    numbers: &[u32],
    slots: &[u16],
    fingerprints: &[u64],
) -> Result<Vec<u8>, usize> {
    let mut found = vec![0; slots.len()];
    let mut keys = Vec::new();
    let mut at = 0;
    for (place, (page, &number)) in pages.chunks_exact(PAGE_BYTES).zip(numbers).enumerate() {
        keys.clear();
        if !unpack_page(page, number, &mut keys) {
            return Err(place);
        }
        let Some(&last) = keys.last() else { continue };
        let mut rest = keys.as_slice();
        while at < slots.len() {
            let key = key_of(slots[at], fingerprints[at]);
            if key > last {
                break;
            }
            // Few keys for many of a page are looked up, many are merged.
            let ahead = match rest.iter().take(32).position(|&one| one >= key) {
                Some(ahead) => ahead,
                None => rest.partition_point(|&one| one < key),
            };
            rest = &rest[ahead..];
            found[at] = u8::from(rest.first() == Some(&key));
            at += 1;
        }
    }
    Ok(found)
}
