//! Sorted keys (slot, 56 bits of a fingerprint) in pages of 4,096 bytes, packed by Elias and Fano.
//!
//! | crc32c of the rest u32 | number u32 | keys u16 | low_bits u8 | 0 u8 | slot of the first key u16 | its fingerprint, 8
//! bytes | 2 zeros | lower bits, `low_bits` of each key, filled to a byte | upper bits |, all little endian, the lowest
//! bit first. A key is its distance from the first one; a bucket is a distance without its lower bits. The upper bits
//! are a one for each key, and a zero at the end of each bucket. So a key is found without reading the keys before it.
//! A page begins with its number, so a page that is read from the wrong place is noticed.

use crate::framing::crc32c;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4_096;
const HEAD_BYTES: usize = 24;
const BITS: usize = 8 * (PAGE_BYTES - HEAD_BYTES);
const FINGERPRINT: u64 = (1 << 56) - 1;
/// Bytes after a page, so that 16 bytes can be read at any lower bits, and a word after the last upper bits.
const SLACK: usize = 24;
const LOW_BITS_MAX: usize = 67;
/// Ranges of about this number of rows fit the cache; their ends do too, up to 2^RANGES_BITS_MAX ranges.
const ROWS_PER_RANGE: usize = 32;
const RANGES_BITS_MAX: u32 = 12;

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

/// Sorts numbers that are spread about evenly between the least and the greatest: first they are distributed among
/// ranges, whose numbers are then sorted in the cache of the processor.
pub(crate) fn sorted_rows(mut rows: Vec<u128>) -> Vec<u128> {
    let (Some(&least), Some(&most)) = (rows.iter().min(), rows.iter().max()) else { return rows };
    let ranges_bits =
        (rows.len() / ROWS_PER_RANGE).checked_ilog2().unwrap_or(0).min(RANGES_BITS_MAX);
    if ranges_bits == 0 {
        rows.sort_unstable();
        return rows;
    }
    let shift = (128 - (most - least).leading_zeros()).saturating_sub(ranges_bits);
    let range = |row: u128| ((row - least) >> shift) as usize;
    let mut ends = vec![0; (1 << ranges_bits) + 1];
    for &row in &rows {
        ends[range(row) + 1] += 1;
    }
    for at in 1..ends.len() {
        ends[at] += ends[at - 1];
    }
    let mut distributed = vec![0; rows.len()];
    for &row in &rows {
        let next = &mut ends[range(row)];
        distributed[*next] = row;
        *next += 1;
    }
    // Now each number is the end of its range.
    let mut start = 0;
    for &end in &ends[..ends.len() - 1] {
        distributed[start..end].sort_unstable();
        start = end;
    }
    distributed
}

/// The keys in ascending order, each once, and for each given key its place among them.
#[must_use]
pub fn rank_keys(slots: &[u16], fingerprints: &[u64]) -> (Vec<u16>, Vec<u64>, Vec<u32>) {
    // One number for key and place: they are compared at once.
    let places = keys_of(slots, fingerprints).into_iter().enumerate();
    let rows: Vec<u128> = places.map(|(place, key)| key << 32 | place as u128).collect();
    let rows = sorted_rows(rows);
    let mut keys: Vec<u128> = Vec::with_capacity(rows.len());
    let mut places = vec![0; rows.len()];
    for row in rows {
        let key = row >> 32;
        if keys.last() != Some(&key) {
            keys.push(key);
        }
        places[row as u32 as usize] = keys.len() as u32 - 1;
    }
    let (slots, fingerprints) = columns_of(&keys);
    (slots, fingerprints, places)
}

/// How many lower bits keys have whose last distance is `last`: then there are one to two buckets for each key.
fn low_bits_of(last: u128, count: usize) -> usize {
    let bits = |number: u128| (128 - number.leading_zeros()) as usize;
    let low_bits = bits(last).saturating_sub(bits(count as u128));
    if last >> low_bits < count as u128 {
        low_bits.saturating_sub(1)
    } else {
        low_bits
    }
}

/// How many bits of a page the keys need.
fn bits_of(last: u128, count: usize, low_bits: usize) -> usize {
    8 * (count * low_bits).div_ceil(8) + count + (last >> low_bits) as usize
}

/// Pages of ascending keys, numbered from `first`, and how many keys they contain: all, or with `whole` false only those
/// of pages that are full.
#[must_use]
pub fn pack(slots: &[u16], fingerprints: &[u64], first: u32, whole: bool) -> (Vec<u8>, usize) {
    let keys = keys_of(slots, fingerprints);
    let mut pages = Vec::with_capacity(keys.len() * 6 + PAGE_BYTES);
    let (mut at, mut number) = (0, first);
    while at < keys.len() {
        let (mut low_bits, mut end) = (0, at + 1);
        while end < keys.len() {
            let (last, count) = (keys[end] - keys[at], end - at + 1);
            let some = low_bits_of(last, count);
            if bits_of(last, count, some) > BITS {
                break;
            }
            (low_bits, end) = (some, end + 1);
        }
        if end == keys.len() && !whole {
            break;
        }
        pack_page(&keys[at..end], low_bits, number, &mut pages);
        (at, number) = (end, number.wrapping_add(1));
    }
    (pages, at)
}

fn pack_page(keys: &[u128], low_bits: usize, number: u32, pages: &mut Vec<u8>) {
    let start = pages.len();
    pages.extend_from_slice(&[0; 4]);
    pages.extend_from_slice(&number.to_le_bytes());
    pages.extend_from_slice(&(keys.len() as u16).to_le_bytes());
    pages.extend_from_slice(&[low_bits as u8, 0]);
    pages.extend_from_slice(&((keys[0] >> 56) as u16).to_le_bytes());
    pages.extend_from_slice(&(keys[0] as u64 & FINGERPRINT).to_le_bytes());
    pages.extend_from_slice(&[0; 2]);
    let mask = (1 << low_bits) - 1;
    let (mut gathered, mut filled) = (0_u128, 0);
    for &key in keys {
        gathered |= ((key - keys[0]) & mask) << filled;
        filled += low_bits;
        while filled >= 32 {
            pages.extend_from_slice(&(gathered as u32).to_le_bytes());
            gathered >>= 32;
            filled -= 32;
        }
    }
    pages.extend_from_slice(&(gathered as u32).to_le_bytes()[..filled.div_ceil(8)]);
    let upper = pages.len();
    pages.resize(start + PAGE_BYTES, 0);
    for (place, &key) in keys.iter().enumerate() {
        let one = ((key - keys[0]) >> low_bits) as usize + place;
        pages[upper + one / 8] |= 1 << (one % 8);
    }
    let sum = crc32c(0, &pages[start + 4..]);
    pages[start..start + 4].copy_from_slice(&sum.to_le_bytes());
}

fn number_at<const N: usize>(octets: &[u8], at: usize) -> [u8; N] {
    let mut found = [0; N];
    found.copy_from_slice(&octets[at..at + N]);
    found
}

fn first_key_of(page: &[u8]) -> u128 {
    let slot = u16::from_le_bytes(number_at(page, 12));
    key_of(slot, u64::from_le_bytes(number_at(page, 14)))
}

/// The page at this place and some bytes after it. `last` is for the last page, whose bytes after it are zeros.
fn page_at<'a>(pages: &'a [u8], place: usize, last: &'a mut [u8; PAGE_BYTES + SLACK]) -> &'a [u8] {
    let at = place * PAGE_BYTES;
    if let Some(octets) = pages.get(at..at + PAGE_BYTES + SLACK) {
        return octets;
    }
    last[..PAGE_BYTES].copy_from_slice(&pages[at..at + PAGE_BYTES]);
    last
}

/// A page whose checksum and number are right, and bytes after it, which are not used.
struct Page<'a> {
    octets: &'a [u8],
    count: usize,
    low_bits: usize,
    base: u128,
    upper: usize,
}

impl<'a> Page<'a> {
    /// None if the page is damaged or has another number.
    fn of(octets: &'a [u8], number: u32) -> Option<Self> {
        let count = usize::from(u16::from_le_bytes(number_at(octets, 8)));
        let low_bits = usize::from(octets[10]);
        let sound = crc32c(0, &octets[4..PAGE_BYTES]) == u32::from_le_bytes(number_at(octets, 0))
            && u32::from_le_bytes(number_at(octets, 4)) == number
            && count > 0
            && low_bits <= LOW_BITS_MAX
            && bits_of(0, count, low_bits) <= BITS;
        if !sound {
            return None;
        }
        let base = first_key_of(octets);
        let upper = HEAD_BYTES + (count * low_bits).div_ceil(8);
        Some(Self { octets, count, low_bits, base, upper })
    }

    /// The lower bits of a key; `low_bits` is below 58 or the key is rare.
    fn low(&self, place: usize) -> u128 {
        let bit = place * self.low_bits;
        let at = HEAD_BYTES + bit / 8;
        if self.low_bits < 58 {
            let word = u64::from_le_bytes(number_at(self.octets, at));
            return u128::from(word >> (bit % 8) & ((1 << self.low_bits) - 1));
        }
        u128::from_le_bytes(number_at(self.octets, at)) >> (bit % 8) & ((1 << self.low_bits) - 1)
    }

    /// Words of the upper bits; zeros after the last one.
    fn upper_word(&self, place: usize) -> u64 {
        let at = self.upper + 8 * place;
        let word = || u64::from_le_bytes(number_at(self.octets, at));
        match PAGE_BYTES.saturating_sub(at) {
            0 => 0,
            left @ 1..8 => word() & ((1 << (8 * left)) - 1),
            _ => word(),
        }
    }

    fn upper_words(&self) -> usize {
        (PAGE_BYTES - self.upper).div_ceil(8)
    }

    /// Appends its keys; false if there are fewer than it says.
    fn read(&self, keys: &mut Vec<u128>) -> bool {
        keys.reserve(self.count);
        let mut place = 0;
        for number in 0..self.upper_words() {
            let mut ones = self.upper_word(number);
            while ones != 0 && place < self.count {
                let one = 64 * number + ones.trailing_zeros() as usize;
                let distance = ((one - place) as u128) << self.low_bits | self.low(place);
                keys.push(self.base + distance);
                place += 1;
                ones &= ones - 1;
            }
        }
        place == self.count
    }
}

/// Searches a page for keys that ascend. It has read `word` words of the upper bits, with this number of zeros.
#[derive(Default)]
struct Search {
    word: usize,
    zeros: usize,
}

impl Search {
    fn finds(&mut self, page: &Page, key: u128) -> bool {
        let Some(distance) = key.checked_sub(page.base) else { return false };
        if distance >> page.low_bits >= BITS as u128 {
            return false;
        }
        let bucket = (distance >> page.low_bits) as usize;
        // The ones of the bucket begin after this number of zeros.
        let words = page.upper_words();
        while self.word < words {
            let here = page.upper_word(self.word).count_zeros() as usize;
            if self.zeros + here >= bucket {
                break;
            }
            self.zeros += here;
            self.word += 1;
        }
        if self.word == words {
            return false;
        }
        let zeros = !page.upper_word(self.word);
        let mut one = 64 * self.word + after_ones(zeros, bucket - self.zeros);
        let sought = distance & ((1 << page.low_bits) - 1);
        while page.upper_word(one / 64) >> (one % 64) & 1 == 1 && one - bucket < page.count {
            let low = page.low(one - bucket);
            if low >= sought {
                return low == sought;
            }
            one += 1;
        }
        false
    }
}

/// The place after the last of this number of ones; the word has as many.
fn after_ones(word: u64, number: usize) -> usize {
    let mut rest = word;
    for _ in 1..number {
        rest &= rest - 1;
    }
    if number == 0 {
        0
    } else {
        rest.trailing_zeros() as usize + 1
    }
}

/// The keys of pages with these numbers. The place of a page that is damaged is an error.
pub fn unpack(pages: &[u8], numbers: &[u32]) -> Result<(Vec<u16>, Vec<u64>), usize> {
    let mut keys = Vec::new();
    let mut last = [0; PAGE_BYTES + SLACK];
    for (place, &number) in numbers.iter().enumerate() {
        let octets = page_at(pages, place, &mut last);
        if !Page::of(octets, number).is_some_and(|page| page.read(&mut keys)) {
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
    let mut at = 0;
    let mut last = [0; PAGE_BYTES + SLACK];
    for (place, &number) in numbers.iter().enumerate() {
        let page = Page::of(page_at(pages, place, &mut last), number).ok_or(place)?;
        let end =
            pages.get((place + 1) * PAGE_BYTES..).filter(|rest| !rest.is_empty()).map(first_key_of);
        let mut search = Search::default();
        while at < slots.len() {
            let key = key_of(slots[at], fingerprints[at]);
            if end.is_some_and(|end| key >= end) {
                break;
            }
            found[at] = u8::from(search.finds(&page, key));
            at += 1;
        }
    }
    Ok(found)
}
