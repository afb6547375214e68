//! Hash to row: where the state of a host or queue lies, by its 64-bit hash; a growth costs one shard, never all of them.
//!
//! The hash is spread by a bijection; its upper 10 bits choose one of 1,024 shards. A shard is one array of (key, row) in the
//! order of the keys, with gaps: a key stands at the first free place at or after its home, which is the key's share of
//! the capacity. As homes rise with the keys, a search ends at the first greater key, a growth is one pass in order, and
//! a removal moves its successors back, without tombstones.

// `NONE` is the row of a hash that is not there; it also marks the places of a shard that are free.
use crate::rows::NONE;

const SHARD_BITS: u32 = 10;
/// Keys that are looked at together, so that their cache misses overlap.
const ABREAST: usize = 32;

/// 12 bytes: a u64 in the struct would make it 16.
#[derive(Clone, Copy)]
struct Place {
    key: [u32; 2],
    row: u32,
}

const FREE: Place = Place { key: [0, 0], row: NONE };

impl Place {
    fn new(key: u64, row: u32) -> Self {
        Self { key: [key as u32, (key >> 32) as u32], row }
    }

    fn key(&self) -> u64 {
        u64::from(self.key[0]) | (u64::from(self.key[1]) << 32)
    }
}

/// The finaliser of MurmurHash3 (Appleby 2011): bijective, so that keys are equal when hashes are, and poor hashes spread too.
fn spread(hash: u64) -> u64 {
    let mut key = hash;
    key = (key ^ (key >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    key = (key ^ (key >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    key ^ (key >> 33)
}

fn shard_of(key: u64) -> usize {
    (key >> (64 - SHARD_BITS)) as usize
}

#[derive(Default)]
struct Shard {
    /// `capacity` homes, and what was pushed out at the end.
    places: Vec<Place>,
    capacity: u32,
    entries: u32,
}

impl Shard {
    /// Rises with the key, so that places in order of homes are in order of keys.
    fn home(&self, key: u64) -> usize {
        let within = (key << SHARD_BITS) >> 32;
        ((within * u64::from(self.capacity)) >> 32) as usize
    }

    /// Where the key stands, or where it would.
    fn search(&self, key: u64) -> (usize, bool) {
        let home = self.home(key);
        for (place, held) in self.places.iter().enumerate().skip(home) {
            if held.row == NONE || held.key() > key {
                return (place, false);
            }
            if held.key() == key {
                return (place, true);
            }
        }
        (self.places.len().max(home), false)
    }

    fn find(&self, key: u64) -> u32 {
        match self.search(key) {
            (place, true) => self.places[place].row,
            _ => NONE,
        }
    }

    fn add(&mut self, number: usize, key: u64, row: u32) {
        let (mut place, known) = self.search(key);
        if known {
            self.places[place].row = row;
            return;
        }
        // Longer searches than at a load of 17/20 are not worth the memory that they save.
        if (u64::from(self.entries) + 1) * 20 > u64::from(self.capacity) * 17 {
            // The factor differs between shards: they grow one after the other, not all in the same call.
            let step = self.capacity / 8 + self.capacity / 128 * (number as u32 % 8);
            self.resize(self.capacity + step.max(4));
            (place, _) = self.search(key);
        }
        let gap = self.places[place..].iter().position(|held| held.row == NONE);
        let gap = gap.map_or(self.places.len(), |steps| place + steps);
        if gap == self.places.len() {
            push_free(&mut self.places);
        }
        self.places.copy_within(place..gap, place + 1);
        self.places[place] = Place::new(key, row);
        self.entries += 1;
    }

    fn remove(&mut self, key: u64) -> bool {
        let (place, known) = self.search(key);
        if !known {
            return false;
        }
        let mut end = place + 1;
        while end < self.places.len() {
            let next = &self.places[end];
            if next.row == NONE || self.home(next.key()) >= end {
                break;
            }
            end += 1;
        }
        self.places.copy_within(place + 1..end, place);
        self.places[end - 1] = FREE;
        self.entries -= 1;
        if u64::from(self.entries) * 3 < u64::from(self.capacity) {
            self.resize(self.entries + self.entries / 2);
        }
        true
    }

    fn resize(&mut self, capacity: u32) {
        let homes = capacity as usize;
        let old = std::mem::take(&mut self.places);
        let mut places = Vec::new();
        if homes > 0 {
            places.reserve_exact(homes + 4 + (homes / 32).min(100));
        }
        places.resize(homes, FREE);
        self.capacity = capacity;
        let mut next = 0;
        for held in old.into_iter().filter(|held| held.row != NONE) {
            let place = next.max(self.home(held.key()));
            if place >= places.len() {
                push_free(&mut places);
            }
            places[place] = held;
            next = place + 1;
        }
        self.places = places;
    }
}

/// One more place at the end; not twice as many, as `push` alone would make of a full array.
fn push_free(places: &mut Vec<Place>) {
    if places.len() == places.capacity() {
        places.reserve_exact(8);
    }
    places.push(FREE);
}

/// A map from hashes to rows.
pub struct Index {
    shards: Vec<Shard>,
    entries: usize,
}

impl Default for Index {
    fn default() -> Self {
        Self::new()
    }
}

impl Index {
    /// An empty index; it holds no places yet.
    #[must_use]
    pub fn new() -> Self {
        Self { shards: (0..1 << SHARD_BITS).map(|_| Shard::default()).collect(), entries: 0 }
    }

    /// How many hashes have a row.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether none has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Bytes held, reserve included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let places: usize = self.shards.iter().map(|shard| shard.places.capacity()).sum();
        places * size_of::<Place>() + self.shards.len() * size_of::<Shard>()
    }

    /// Reads the homes of some hashes, each independent of the others, so that the processor waits for them together.
    fn approach(&self, hashes: &[u64]) {
        let mut seen = 0;
        for &hash in hashes {
            let key = spread(hash);
            let shard = &self.shards[shard_of(key)];
            seen ^= shard.places.get(shard.home(key)).map_or(0, |place| place.row);
        }
        std::hint::black_box(seen);
    }

    /// The row of each hash, `NONE` where it has none.
    #[must_use]
    pub fn find(&self, hashes: &[u64]) -> Vec<u32> {
        let mut rows = Vec::with_capacity(hashes.len());
        for some in hashes.chunks(ABREAST) {
            self.approach(some);
            rows.extend(some.iter().map(|&hash| {
                let key = spread(hash);
                self.shards[shard_of(key)].find(key)
            }));
        }
        rows
    }

    /// Gives each hash its row, in order; a known hash gets the new one. `Err`: the place of the first row that is `NONE`,
    /// and nothing was added.
    pub fn add(&mut self, hashes: &[u64], rows: &[u32]) -> Result<(), usize> {
        if let Some(at) = rows.iter().position(|&row| row == NONE) {
            return Err(at);
        }
        for (some, rows) in hashes.chunks(ABREAST).zip(rows.chunks(ABREAST)) {
            self.approach(some);
            for (&hash, &row) in some.iter().zip(rows) {
                let key = spread(hash);
                let number = shard_of(key);
                let shard = &mut self.shards[number];
                let before = shard.entries;
                shard.add(number, key, row);
                self.entries += (shard.entries - before) as usize;
            }
        }
        Ok(())
    }

    /// Forgets the hashes; unknown ones are passed over.
    pub fn remove(&mut self, hashes: &[u64]) {
        for some in hashes.chunks(ABREAST) {
            self.approach(some);
            for &hash in some {
                let key = spread(hash);
                self.entries -= usize::from(self.shards[shard_of(key)].remove(key));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unspread(key: u64) -> u64 {
        // The inverses of the two factors modulo 2^64; a shift by 33 undoes itself.
        let mut hash = key;
        hash = (hash ^ (hash >> 33)).wrapping_mul(0x9cb4_b2f8_1293_37db);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0x4f74_430c_22a5_4005);
        hash ^ (hash >> 33)
    }

    #[test]
    fn keys_of_one_home_at_the_end_of_a_shard_find_their_rows() {
        let hashes: Vec<u64> = (0..1_000).map(|number| unspread(u64::MAX - number)).collect();
        let rows: Vec<u32> = (0..1_000).collect();
        let mut index = Index::new();
        index.add(&hashes, &rows).unwrap();
        assert_eq!(rows, index.find(&hashes));
        assert_eq!(1_000, index.shards[1023].entries);
        assert!(index.bytes() < 64 * 1024);
        index.remove(&hashes[..999]);
        assert_eq!(vec![NONE, 999], index.find(&hashes[998..]));
        index.remove(&hashes);
        assert!(index.is_empty());
        assert_eq!(0, index.shards[1023].places.capacity());
    }

    #[test]
    fn the_keys_of_a_shard_stand_in_order_at_or_after_their_homes() {
        let mut index = Index::new();
        let hashes: Vec<u64> = (0..50_000).collect();
        index.add(&hashes, &vec![7; 50_000]).unwrap();
        index.remove(&hashes[..20_000]);
        for shard in &index.shards {
            let held: Vec<(usize, u64)> = shard
                .places
                .iter()
                .enumerate()
                .filter(|(_, held)| held.row != NONE)
                .map(|(place, held)| (place, held.key()))
                .collect();
            assert!(held.windows(2).all(|pair| pair[0].1 < pair[1].1));
            assert!(held.iter().all(|&(place, key)| shard.home(key) <= place));
            assert_eq!(shard.entries as usize, held.len());
        }
    }
}
