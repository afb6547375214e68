//! Eight octets at once, as one number whose lowest octet comes first; a mark is the highest bit of an octet.

const ONES: u64 = 0x0101_0101_0101_0101;
const SEVENS: u64 = 0x7f7f_7f7f_7f7f_7f7f;
const MARKS: u64 = 0x8080_8080_8080_8080;

/// The eight octets at a place; None where there are fewer.
#[inline]
#[must_use]
pub fn at(octets: &[u8], place: usize) -> Option<u64> {
    octets.get(place..)?.first_chunk().map(|eight| u64::from_le_bytes(*eight))
}

/// Marks the octets that are this one.
#[inline]
#[must_use]
pub const fn equal(eight: u64, octet: u8) -> u64 {
    let differing = eight ^ (ONES * octet as u64);
    !(((differing & SEVENS) + SEVENS) | differing) & MARKS
}

/// Marks the octets that are less than this one, which is no more than 128.
#[inline]
#[must_use]
pub const fn below(eight: u64, octet: u8) -> u64 {
    !(((eight & SEVENS) + ONES * (128 - octet as u64)) | eight) & MARKS
}

/// How many octets stand before the first mark; 8 where there is none.
#[inline]
#[must_use]
pub const fn first(marks: u64) -> usize {
    (marks.trailing_zeros() / 8) as usize
}

/// How many marks there are.
#[inline]
#[must_use]
pub const fn count(marks: u64) -> usize {
    ((marks >> 7).wrapping_mul(ONES) >> 56) as usize
}

/// The first octets, and zeros behind them; `count` is less than 8.
#[inline]
#[must_use]
pub const fn front(eight: u64, count: usize) -> u64 {
    eight & ((1 << (8 * count)) - 1)
}

/// Letters of ASCII in lower case.
#[inline]
#[must_use]
pub const fn lowered(eight: u64) -> u64 {
    let capitals = below(eight, b'Z' + 1) & !below(eight, b'A');
    eight | capitals >> 2
}

/// Where the octet is found, from a place on: for octets that mostly are near.
#[inline]
#[must_use]
pub fn find(octet: u8, octets: &[u8], from: usize) -> Option<usize> {
    const NEAR: usize = 32;
    let mut place = from;
    while place < from + NEAR {
        let Some(eight) = at(octets, place) else { break };
        // Cheaper than `equal`: the first mark is right, others need not be.
        let differing = eight ^ (ONES * octet as u64);
        let found = differing.wrapping_sub(ONES) & !differing & MARKS;
        if found != 0 {
            return Some(place + first(found));
        }
        place += 8;
    }
    memchr::memchr(octet, octets.get(place..)?).map(|found| place + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_stand_at_the_octets_that_are_meant() {
        let mut state = 1_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let mut octets = (state ^ state >> 29).to_le_bytes();
            if state & 1 << 40 != 0 {
                octets =
                    octets.map(|octet| b"\0 !<AZ[@az{\x7f\x80\xff\xc1/"[usize::from(octet & 15)]);
            }
            let eight = u64::from_le_bytes(octets);
            let marked = |marks: u64| marks.to_le_bytes().map(|mark| mark == 0x80);
            for limit in [0, 1, 0x21, b'A', b'Z' + 1, 0x7f, 0x80] {
                assert_eq!(octets.map(|octet| octet < limit), marked(below(eight, limit)));
                assert_eq!(octets.map(|octet| octet == limit), marked(equal(eight, limit)));
                let less = octets.iter().filter(|octet| **octet < limit).count();
                assert_eq!(less, count(below(eight, limit)));
            }
            assert_eq!(
                octets.map(|octet| octet.to_ascii_lowercase()),
                lowered(eight).to_le_bytes()
            );
            assert_eq!(octets.map(|octet| octet == 0xff), marked(equal(eight, 0xff)));
        }
    }

    #[test]
    fn an_octet_is_found_where_it_stands_first() {
        for size in 0..70 {
            for place in 0..size {
                let mut octets = vec![b'x'; size];
                octets[place] = b'<';
                octets[size - 1] = b'<';
                for from in 0..=size + 1 {
                    let rest = octets.get(from..).unwrap_or(&[]);
                    let expected = rest.iter().position(|octet| *octet == b'<');
                    assert_eq!(expected.map(|found| from + found), find(b'<', &octets, from));
                }
            }
        }
    }
}
