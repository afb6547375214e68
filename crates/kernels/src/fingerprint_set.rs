//! An exact set of 68-bit keys (slot, fingerprint) in RAM, at little more than the bytes that any such set must take.
//!
//! Each of the 4,096 slots has leaves in the order of the fingerprints, each leaf two parts: up to 4,096 keys packed by
//! Elias and Fano (Elias 1974, "Efficient storage and retrieval by content and address of static files"), and a short
//! sorted list of what was added or removed since, merged into the packed part when it is full. A leaf that grows beyond
//! its bound becomes two. So a change costs its share of one small merge, and nothing ever moves the whole.
//!
//! The packed part is one block of the heap and grows a little at each merge, which leaves holes: after 10^7 keys in chance
//! order the process holds a quarter more than `bytes` says, after as many in ascending order 1 % more. Chunks of 2 KB from
//! a pool of our own were tried: they leave few holes, but a check then takes 1.6 times as long.
//!
//! The packed words of `count` keys, by their distance from `base`, the smallest:
//!
//! | every 128th bucket's start in the upper bits, u16 | upper bits | lower bits, `low_bits` of each key |
//!
//! A key's bucket is its distance without the lower bits. The upper bits hold, bucket after bucket, a one per key and a
//! zero at the end. Per key this takes low_bits + 2 to 3 bits; `low_bits` is chosen so that there are one to two buckets
//! per key. The other code, blocks of 128 differences of fixed width, takes 1 bit more and must be read from its start.

/// How many slots there are; a slot is below this.
pub const SLOTS: usize = 4_096;

const FINGERPRINT: u64 = (1 << 56) - 1;
/// A merge reads and writes so many keys at most, some 20 µs; leaves of fewer would pay for more heads.
const LEAF_KEYS_MAX: usize = 4_096;
/// What is cut from more than that; the rest is room to grow.
const PIECE_KEYS: usize = 3_072;
/// Leaves that removals left with fewer are joined to a neighbour.
const LEAF_KEYS_MIN: usize = 512;
/// A merge costs as much as so many keys more, and a pending key takes 2 to 4 bytes more than a packed one.
const KEYS_PER_PENDING: usize = 32;
const PENDING_MIN: usize = 64;
const BUCKETS_PER_SAMPLE: usize = 128;
const SAMPLES_PER_WORD: usize = 4;
/// Keys that are looked at together, so that their cache misses overlap.
const ABREAST: usize = 32;
/// The allocator's own bytes per block: a header of 8 and what is lost to rounding.
const BLOCK_BYTES: usize = 16;

#[derive(Default)]
struct Leaf {
    words: Box<[u64]>,
    /// Each fingerprint * 2, + 1 where it is a packed key that was removed; sorted.
    pending: Vec<u64>,
    base: u64,
    count: u32,
    buckets: u32,
    low_bits: u32,
}

impl Leaf {
    /// Packs keys that ascend.
    fn pack(keys: &[u64]) -> Self {
        let (Some(&base), Some(&last)) = (keys.first(), keys.last()) else {
            return Self::default();
        };
        let low_bits = ((last - base) / keys.len() as u64).checked_ilog2().unwrap_or(0);
        let buckets = ((last - base) >> low_bits) as usize + 1;
        let mut leaf = Self {
            words: Box::default(),
            pending: Vec::new(),
            base,
            count: keys.len() as u32,
            buckets: buckets as u32,
            low_bits,
        };
        let (upper, lower) = (leaf.upper_start(), leaf.lower_start());
        let mut words = vec![0; lower + (keys.len() * low_bits as usize).div_ceil(64)];
        let low_mask = (1 << low_bits) - 1;
        let (mut at, mut gathered, mut filled) = (lower, 0, 0);
        let mut sample = 1;
        for (number, &key) in keys.iter().enumerate() {
            let distance = key - base;
            let bucket = (distance >> low_bits) as usize;
            while bucket >= sample * BUCKETS_PER_SAMPLE {
                let start = (sample * BUCKETS_PER_SAMPLE + number) as u64;
                let place = sample - 1;
                words[place / SAMPLES_PER_WORD] |= start << (place % SAMPLES_PER_WORD * 16);
                sample += 1;
            }
            let one = bucket + number;
            words[upper + one / 64] |= 1 << (one % 64);
            let low = distance & low_mask;
            gathered |= low << filled;
            filled += low_bits;
            if filled >= 64 {
                words[at] = gathered;
                at += 1;
                filled -= 64;
                gathered = if filled == 0 { 0 } else { low >> (low_bits - filled) };
            }
        }
        if filled > 0 {
            words[at] = gathered;
        }
        leaf.words = words.into_boxed_slice();
        leaf
    }

    fn upper_start(&self) -> usize {
        let samples = (self.buckets as usize).saturating_sub(1) / BUCKETS_PER_SAMPLE;
        samples.div_ceil(SAMPLES_PER_WORD)
    }

    fn lower_start(&self) -> usize {
        self.upper_start() + (self.count as usize + self.buckets as usize).div_ceil(64)
    }

    /// Where the bucket's multiple of 128 starts in the upper bits.
    fn sample(&self, bucket: usize) -> usize {
        let Some(place) = (bucket / BUCKETS_PER_SAMPLE).checked_sub(1) else { return 0 };
        let word = self.words.get(place / SAMPLES_PER_WORD).copied().unwrap_or(0);
        (word >> (place % SAMPLES_PER_WORD * 16)) as usize & 0xffff
    }

    /// The lower bits of a packed key; `lower` is `lower_start`, `low_bits` not 0.
    fn low(&self, lower: usize, number: usize) -> u64 {
        let bit = number * self.low_bits as usize;
        let (at, shift) = (lower + bit / 64, bit % 64);
        let next = self.words[(at + 1).min(self.words.len() - 1)];
        let low = self.words[at] >> shift | next << 1 << (63 - shift);
        low & ((1 << self.low_bits) - 1)
    }

    fn packed_contains(&self, fingerprint: u64) -> bool {
        let Some(distance) = fingerprint.checked_sub(self.base) else { return false };
        if distance >> self.low_bits >= u64::from(self.buckets) {
            return false;
        }
        let bucket = (distance >> self.low_bits) as usize;
        let (upper, lower) = (self.upper_start(), self.lower_start());
        let uppers = &self.words[upper..lower];
        let sought = distance & ((1 << self.low_bits) - 1);
        let mut one = skip_zeros(uppers, self.sample(bucket), bucket % BUCKETS_PER_SAMPLE);
        while uppers[one / 64] >> (one % 64) & 1 == 1 {
            let low = if self.low_bits == 0 { 0 } else { self.low(lower, one - bucket) };
            if low >= sought {
                return low == sought;
            }
            one += 1;
        }
        false
    }

    /// Reads the words that a look-up will most likely read, none of which depends on another look-up.
    fn approach(&self, fingerprint: u64) -> u64 {
        let bucket = (fingerprint.saturating_sub(self.base) >> self.low_bits) as usize;
        if self.count == 0 || bucket >= self.buckets as usize {
            return 0;
        }
        let into = bucket % BUCKETS_PER_SAMPLE;
        let ones = into * self.count as usize / self.buckets as usize;
        let one = self.sample(bucket) + into + ones;
        let number = (one - bucket.min(one)).min(self.count as usize - 1);
        let upper = self.words[(self.upper_start() + one / 64).min(self.words.len() - 1)];
        let at = self.lower_start() + number * self.low_bits as usize / 64;
        upper ^ self.words[at.min(self.words.len() - 1)]
    }

    /// Where the fingerprint stands among the pending, or would; and whether it does.
    fn pending_place(&self, fingerprint: u64) -> (usize, bool) {
        let place = self.pending.partition_point(|entry| entry >> 1 < fingerprint);
        (place, self.pending.get(place).is_some_and(|entry| entry >> 1 == fingerprint))
    }

    fn contains(&self, fingerprint: u64) -> bool {
        match self.pending_place(fingerprint) {
            (place, true) => self.pending[place] & 1 == 0,
            _ => self.packed_contains(fingerprint),
        }
    }

    fn insert(&mut self, fingerprint: u64) -> bool {
        match self.pending_place(fingerprint) {
            (place, true) if self.pending[place] & 1 == 0 => return false,
            (place, true) => {
                self.pending.remove(place);
            }
            _ if self.packed_contains(fingerprint) => return false,
            (place, _) => self.put_pending(place, fingerprint << 1),
        }
        true
    }

    fn remove(&mut self, fingerprint: u64) -> bool {
        match self.pending_place(fingerprint) {
            (place, true) if self.pending[place] & 1 == 1 => return false,
            (place, true) => {
                self.pending.remove(place);
            }
            _ if !self.packed_contains(fingerprint) => return false,
            (place, _) => self.put_pending(place, fingerprint << 1 | 1),
        }
        true
    }

    fn put_pending(&mut self, place: usize, entry: u64) {
        if self.pending.len() == self.pending.capacity() {
            self.pending.reserve_exact((self.pending.len() / 2).max(4));
        }
        self.pending.insert(place, entry);
    }

    fn pending_max(&self) -> usize {
        (self.count as usize / KEYS_PER_PENDING).max(PENDING_MIN)
    }

    /// Appends all keys of the leaf, in order.
    fn read(&self, keys: &mut Vec<u64>) {
        keys.reserve(self.count as usize + self.pending.len());
        let (upper, lower) = (self.upper_start(), self.lower_start());
        let mut pending = self.pending.iter().map(|entry| entry >> 1);
        let mut changed = pending.next().unwrap_or(u64::MAX);
        let (low_bits, low_mask) = (self.low_bits as usize, (1 << self.low_bits) - 1);
        let (lowers, last) = (&self.words[lower..], (self.words.len() - lower).saturating_sub(1));
        let (mut number, mut bit) = (0, 0);
        for (place, &word) in self.words[upper..lower].iter().enumerate() {
            let mut ones = word;
            while ones != 0 {
                let bucket = (place * 64 + ones.trailing_zeros() as usize - number) as u64;
                let mut key = self.base + (bucket << self.low_bits);
                if low_bits > 0 {
                    let (at, shift) = (bit / 64, bit % 64);
                    let next = lowers[(at + 1).min(last)];
                    key += (lowers[at] >> shift | next << 1 << (63 - shift)) & low_mask;
                    bit += low_bits;
                }
                number += 1;
                ones &= ones - 1;
                while changed < key {
                    keys.push(changed);
                    changed = pending.next().unwrap_or(u64::MAX);
                }
                if changed == key {
                    changed = pending.next().unwrap_or(u64::MAX);
                } else {
                    keys.push(key);
                }
            }
        }
        if changed != u64::MAX {
            keys.push(changed);
            keys.extend(pending);
        }
    }

    fn bytes(&self) -> usize {
        let block = |bytes: usize| if bytes == 0 { 0 } else { bytes + BLOCK_BYTES };
        block(8 * self.words.len()) + block(8 * self.pending.capacity())
    }
}

/// Where it goes on after so many zeros from `start`; there are as many.
fn skip_zeros(uppers: &[u64], start: usize, zeros: usize) -> usize {
    if zeros == 0 {
        return start;
    }
    let (mut at, mut left) = (start / 64, zeros);
    let mut wanted = !uppers[at] & u64::MAX << (start % 64);
    loop {
        let here = wanted.count_ones() as usize;
        if left <= here {
            return at * 64 + place_of_one(wanted, left - 1) + 1;
        }
        left -= here;
        at += 1;
        wanted = !uppers[at];
    }
}

/// The place of the one that has `number` ones below it; there is such a one. (Vigna 2008, "Broadword implementation of
/// rank/select queries", without the last table.)
fn place_of_one(word: u64, number: usize) -> usize {
    const BYTES: u64 = 0x0101_0101_0101_0101;
    let mut counts = word - (word >> 1 & 0x5555_5555_5555_5555);
    counts = (counts & 0x3333_3333_3333_3333) + (counts >> 2 & 0x3333_3333_3333_3333);
    let up_to = ((counts + (counts >> 4)) & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul(BYTES);
    // The high bit of each byte up to which there are not more than `number` ones.
    let passed =
        (((number as u64 * BYTES) | 0x8080_8080_8080_8080) - up_to) & 0x8080_8080_8080_8080;
    let place = (passed >> 7).wrapping_mul(BYTES) >> 56 << 3;
    let before = (up_to << 8 >> place) as usize & 0xff;
    let mut rest = word >> place;
    for _ in before..number {
        rest &= rest - 1;
    }
    place as usize + rest.trailing_zeros() as usize
}

#[derive(Default)]
struct Slot {
    /// The least fingerprint of each leaf but the first, whose least is 0.
    lows: Vec<u64>,
    leaves: Vec<Leaf>,
}

/// Room to merge in, kept from call to call.
#[derive(Default)]
struct Scratch {
    held: Vec<u64>,
    merged: Vec<u64>,
}

impl Slot {
    fn place(&self, fingerprint: u64) -> usize {
        self.lows.partition_point(|&low| low <= fingerprint)
    }

    fn insert(&mut self, fingerprint: u64, scratch: &mut Scratch) -> bool {
        if self.leaves.is_empty() {
            self.leaves.reserve_exact(1);
            self.leaves.push(Leaf::default());
        }
        let place = self.place(fingerprint);
        let new = self.leaves[place].insert(fingerprint);
        self.settle(place, scratch);
        new
    }

    fn remove(&mut self, fingerprint: u64, scratch: &mut Scratch) -> bool {
        let place = self.place(fingerprint);
        let Some(leaf) = self.leaves.get_mut(place) else { return false };
        let known = leaf.remove(fingerprint);
        self.settle(place, scratch);
        known
    }

    /// Merges a leaf whose pending part is full.
    fn settle(&mut self, place: usize, scratch: &mut Scratch) {
        let leaf = &self.leaves[place];
        if leaf.pending.len() <= leaf.pending_max() {
            return;
        }
        scratch.merged.clear();
        leaf.read(&mut scratch.merged);
        let (mut from, mut to) = (place, place + 1);
        if scratch.merged.len() < LEAF_KEYS_MIN && self.leaves.len() > 1 {
            if to < self.leaves.len() {
                self.leaves[to].read(&mut scratch.merged);
                to += 1;
            } else {
                from -= 1;
                scratch.merged.clear();
                self.leaves[from..to].iter().for_each(|leaf| leaf.read(&mut scratch.merged));
            }
        }
        self.replace(from, to, &scratch.merged);
    }

    /// Merges a run, in order, that belongs to the leaf at `place`; says of each whether it was new.
    fn merge(&mut self, place: usize, run: &[u64], new: &mut [u8], scratch: &mut Scratch) {
        let Scratch { held, merged } = scratch;
        held.clear();
        self.leaves[place].read(held);
        merged.clear();
        merged.reserve(held.len() + run.len());
        let mut rest = held.as_slice();
        for (&fingerprint, new) in run.iter().zip(new) {
            let ahead = rest.iter().take_while(|&&key| key < fingerprint).count();
            merged.extend_from_slice(&rest[..ahead]);
            rest = &rest[ahead..];
            if rest.first() != Some(&fingerprint) && merged.last() != Some(&fingerprint) {
                merged.push(fingerprint);
                *new = 1;
            }
        }
        merged.extend_from_slice(rest);
        self.replace(place, place + 1, merged);
    }

    /// Puts leaves of these keys where some leaves were.
    fn replace(&mut self, from: usize, to: usize, keys: &[u64]) {
        // Given back first: the allocator can then put the new words in the same place.
        self.leaves[from..to].iter_mut().for_each(|leaf| *leaf = Leaf::default());
        let pieces = if keys.len() <= LEAF_KEYS_MAX { 1 } else { keys.len().div_ceil(PIECE_KEYS) };
        if pieces == 1 && to - from == 1 {
            self.leaves[from] = Leaf::pack(keys);
            return;
        }
        let size = keys.len().div_ceil(pieces);
        let cuts: Vec<&[u64]> =
            if keys.is_empty() { vec![keys] } else { keys.chunks(size).collect() };
        make_room(&mut self.lows, cuts.len());
        make_room(&mut self.leaves, cuts.len());
        // The first of them keeps its lower bound, which is that of the leaf at `from`.
        self.lows.splice(from..to - 1, cuts[1..].iter().map(|cut| cut[0]));
        self.leaves.splice(from..to, cuts.into_iter().map(Leaf::pack));
    }
}

/// Reserves a quarter, not as much again as `Vec` does by itself: slots are many, and most have few leaves.
fn make_room<T>(items: &mut Vec<T>, more: usize) {
    if items.capacity() - items.len() < more {
        items.reserve_exact(more.max(items.len() / 4));
    }
}

/// A set of keys of which each is a slot and the lower 56 bits of a fingerprint.
pub struct FingerprintSet {
    slots: Vec<Slot>,
    keys: usize,
    scratch: Scratch,
}

impl Default for FingerprintSet {
    fn default() -> Self {
        Self::new()
    }
}

/// The place of the first slot that is none, if any.
pub fn wrong_slot(slots: &[u16]) -> Option<usize> {
    slots.iter().position(|&slot| slot as usize >= SLOTS)
}

impl FingerprintSet {
    /// An empty set.
    #[must_use]
    pub fn new() -> Self {
        let slots = (0..SLOTS).map(|_| Slot::default()).collect();
        Self { slots, keys: 0, scratch: Scratch::default() }
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys == 0
    }

    /// Bytes held, reserve and the allocator's own included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let of_slot = |slot: &Slot| {
            let blocks =
                usize::from(slot.lows.capacity() > 0) + usize::from(slot.leaves.capacity() > 0);
            size_of::<Slot>()
                + 8 * slot.lows.capacity()
                + size_of::<Leaf>() * slot.leaves.capacity()
                + BLOCK_BYTES * blocks
                + slot.leaves.iter().map(Leaf::bytes).sum::<usize>()
        };
        let scratch = self.scratch.held.capacity() + self.scratch.merged.capacity();
        self.slots.iter().map(of_slot).sum::<usize>() + 8 * scratch
    }

    /// The keys from one on, in ascending order: at least `most` if there are as many, and no part of a leaf.
    #[must_use]
    pub fn keys_from(&self, slot: u16, fingerprint: u64, most: usize) -> (Vec<u16>, Vec<u64>) {
        let (mut slots, mut prints, mut first) =
            (Vec::new(), Vec::new(), fingerprint & FINGERPRINT);
        for number in usize::from(slot)..SLOTS {
            let slot = &self.slots[number];
            let place = slot.place(first);
            // Where the key is after the last leaf of this slot, the next slot continues.
            for leaf in slot.leaves.get(place..).unwrap_or_default() {
                let start = prints.len();
                leaf.read(&mut prints);
                let before = prints[start..].partition_point(|&print| print < first);
                prints.drain(start..start + before);
                slots.resize(prints.len(), number as u16);
                if prints.len() >= most {
                    return (slots, prints);
                }
            }
            first = 0;
        }
        (slots, prints)
    }

    /// The leaves of a few keys, all read in steps, so that no cache miss waits for that of another key.
    fn approach(&self, slots: &[u16], fingerprints: &[u64]) -> [Option<&Leaf>; ABREAST] {
        let mut leaves: [Option<&Leaf>; ABREAST] = [None; ABREAST];
        let mut seen = 0;
        for &slot in slots {
            let lows = &self.slots[slot as usize].lows;
            seen ^= lows.get(lows.len() / 2).map_or(0, |&low| low);
        }
        let keys = slots.iter().zip(fingerprints);
        for (leaf, (&slot, &fingerprint)) in leaves.iter_mut().zip(keys) {
            let slot = &self.slots[slot as usize];
            *leaf = slot.leaves.get(slot.place(fingerprint & FINGERPRINT));
        }
        for leaf in leaves.iter().flatten() {
            seen ^= leaf.words.get(leaf.upper_start() / 2).map_or(0, |&word| word);
            seen ^= leaf.pending.get(leaf.pending.len() / 2).map_or(0, |&entry| entry);
        }
        for (leaf, fingerprint) in leaves.iter().zip(fingerprints) {
            seen ^= leaf.map_or(0, |leaf| leaf.approach(fingerprint & FINGERPRINT));
        }
        std::hint::black_box(seen);
        leaves
    }

    /// Whether each key of a few is there.
    fn check_abreast(&self, slots: &[u16], fingerprints: &[u64], found: &mut [u8]) {
        let leaves = self.approach(slots, fingerprints);
        for ((leaf, fingerprint), found) in leaves.iter().zip(fingerprints).zip(found) {
            *found = u8::from(leaf.is_some_and(|leaf| leaf.contains(fingerprint & FINGERPRINT)));
        }
    }

    /// 1 for each key that is there, 0 for the others. Slots are below `SLOTS`, here and below.
    #[must_use]
    pub fn check(&self, slots: &[u16], fingerprints: &[u64]) -> Vec<u8> {
        let mut found = vec![0; slots.len()];
        let few = slots.chunks(ABREAST).zip(fingerprints.chunks(ABREAST));
        for ((slots, fingerprints), found) in few.zip(found.chunks_mut(ABREAST)) {
            self.check_abreast(slots, fingerprints, found);
        }
        found
    }

    /// Adds the keys in order; 1 for each that was new, 0 for those known, be it from the same batch.
    pub fn add(&mut self, slots: &[u16], fingerprints: &[u64]) -> Vec<u8> {
        let mut new = vec![0; slots.len()];
        let key =
            |at: usize| u128::from(slots[at]) << 56 | u128::from(fingerprints[at] & FINGERPRINT);
        if (1..slots.len()).all(|at| key(at - 1) <= key(at)) {
            self.add_sorted(slots, fingerprints, &mut new);
            return new;
        }
        // Only a batch that fills the pending part of most leaves is worth sorting: it is then merged leaf by leaf.
        if slots.len() * KEYS_PER_PENDING < self.keys {
            self.add_few(slots, fingerprints, &mut new);
            return new;
        }
        // The number behind the key: of equal keys the first of the batch stays the first.
        let mut order: Vec<u128> = (0..slots.len()).map(|at| key(at) << 32 | at as u128).collect();
        order.sort_unstable();
        let slots: Vec<u16> = order.iter().map(|key| (key >> 88) as u16).collect();
        let fingerprints: Vec<u64> = order.iter().map(|key| (key >> 32) as u64).collect();
        let mut new_in_order = vec![0; slots.len()];
        self.add_sorted(&slots, &fingerprints, &mut new_in_order);
        for (key, is_new) in order.into_iter().zip(new_in_order) {
            new[key as u32 as usize] = is_new;
        }
        new
    }

    fn add_few(&mut self, slots: &[u16], fingerprints: &[u64], new: &mut [u8]) {
        let few = slots.chunks(ABREAST).zip(fingerprints.chunks(ABREAST));
        for ((slots, fingerprints), new) in few.zip(new.chunks_mut(ABREAST)) {
            self.approach(slots, fingerprints);
            for (at, new) in new.iter_mut().enumerate() {
                let slot = &mut self.slots[slots[at] as usize];
                let is_new = slot.insert(fingerprints[at] & FINGERPRINT, &mut self.scratch);
                *new = u8::from(is_new);
                self.keys += usize::from(is_new);
            }
        }
    }

    /// Merges what fills the pending part of a leaf at once, gives the rest to `add_few`.
    fn add_sorted(&mut self, slots: &[u16], fingerprints: &[u64], new: &mut [u8]) {
        let (mut done, mut start) = (0, 0);
        let mut run = Vec::new();
        while start < slots.len() {
            let slot = &self.slots[slots[start] as usize];
            let first = fingerprints[start] & FINGERPRINT;
            let place = slot.place(first);
            let bound = slot.lows.get(place).copied().unwrap_or(FINGERPRINT + 1);
            run.clear();
            run.extend(
                slots[start..]
                    .iter()
                    .zip(&fingerprints[start..])
                    .take_while(|&(&slot, _)| slot == slots[start])
                    .map(|(_, fingerprint)| fingerprint & FINGERPRINT)
                    .take_while(|&fingerprint| fingerprint < bound),
            );
            let end = start + run.len();
            let few = slot.leaves.get(place).map_or(PENDING_MIN, Leaf::pending_max);
            if run.len() <= few {
                start = end;
                continue;
            }
            if done < start {
                // These may change the leaves, so what was seen of them is looked at again.
                self.add_few(
                    &slots[done..start],
                    &fingerprints[done..start],
                    &mut new[done..start],
                );
                done = start;
                continue;
            }
            let slot = &mut self.slots[slots[start] as usize];
            if slot.leaves.is_empty() {
                slot.leaves.reserve_exact(1);
                slot.leaves.push(Leaf::default());
            }
            slot.merge(place, &run, &mut new[start..end], &mut self.scratch);
            self.keys += new[start..end].iter().map(|&new| new as usize).sum::<usize>();
            (done, start) = (end, end);
        }
        self.add_few(&slots[done..], &fingerprints[done..], &mut new[done..]);
    }

    /// Removes the keys in order; 1 for each that was there.
    pub fn remove(&mut self, slots: &[u16], fingerprints: &[u64]) -> Vec<u8> {
        let mut removed = vec![0; slots.len()];
        let few = slots.chunks(ABREAST).zip(fingerprints.chunks(ABREAST));
        for ((slots, fingerprints), removed) in few.zip(removed.chunks_mut(ABREAST)) {
            let mut known = [0; ABREAST];
            self.check_abreast(slots, fingerprints, &mut known);
            for (at, removed) in removed.iter_mut().enumerate().filter(|&(at, _)| known[at] == 1) {
                let slot = &mut self.slots[slots[at] as usize];
                let was_there = slot.remove(fingerprints[at] & FINGERPRINT, &mut self.scratch);
                *removed = u8::from(was_there);
                self.keys -= usize::from(was_there);
            }
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(leaf: &Leaf) -> Vec<u64> {
        let mut keys = Vec::new();
        leaf.read(&mut keys);
        keys
    }

    #[test]
    fn what_is_packed_is_read_and_found_again() {
        let spans: [Vec<u64>; 8] = [
            vec![],
            vec![0],
            vec![FINGERPRINT],
            vec![0, FINGERPRINT],
            (0..4_096).collect(),
            (0..4_096).map(|number| number << 44).collect(),
            (0..4_095).chain([FINGERPRINT]).collect(),
            (1..3_000).map(|number: u64| number * number * number * 777).collect(),
        ];
        for keys in spans {
            let leaf = Leaf::pack(&keys);
            assert_eq!(keys, read(&leaf));
            for &key in &keys {
                assert!(leaf.contains(key));
                let next = key + 1;
                assert_eq!(keys.binary_search(&next).is_ok(), leaf.contains(next));
            }
        }
    }

    #[test]
    fn each_one_of_a_word_has_its_place() {
        for word in [1, u64::MAX, 1 << 63, 0x8000_0000_0000_0001, 0xdead_beef_0bad_cafe] {
            let places = (0..64).filter(|place| word >> place & 1 == 1);
            for (number, place) in places.enumerate() {
                assert_eq!(place, place_of_one(word, number));
            }
        }
    }

    #[test]
    fn the_leaves_of_a_slot_stay_in_order_and_within_their_bounds() {
        let mut set = FingerprintSet::new();
        let keys: Vec<u64> =
            (1..60_001_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) & FINGERPRINT).collect();
        for some in keys.chunks(700) {
            assert_eq!(vec![1; some.len()], set.add(&vec![9; some.len()], some));
        }
        let check = |set: &FingerprintSet| {
            let slot = &set.slots[9];
            assert_eq!(slot.leaves.len(), slot.lows.len() + 1);
            let held: Vec<u64> = slot.leaves.iter().flat_map(read).collect();
            assert!(held.windows(2).all(|pair| pair[0] < pair[1]));
            assert_eq!(set.len(), held.len());
            for (place, leaf) in slot.leaves.iter().enumerate() {
                assert!(read(leaf).iter().all(|&key| slot.place(key) == place));
                assert!(leaf.count as usize <= LEAF_KEYS_MAX);
            }
            slot.leaves.len()
        };
        assert!(check(&set) >= 60_000 / LEAF_KEYS_MAX);
        for some in keys[..59_900].chunks(900) {
            assert_eq!(vec![1; some.len()], set.remove(&vec![9; some.len()], some));
        }
        assert!(check(&set) <= 3);
        assert_eq!(vec![1; 100], set.check(&[9; 100], &keys[59_900..]));
    }
}
