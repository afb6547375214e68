//! Character references decoded, newlines made one, NUL replaced or dropped: what a tokeniser does to text and values.

use memchr::memchr3;

use super::entities::ENTITIES;

/// The longest name without a semicolon that is a reference all the same.
const BARE_NAME_BYTES_MAX: usize = 6;
/// The longest name of all, semicolon included.
const NAME_BYTES_MAX: usize = 32;
/// For the octets 0x80 to 0x9f that references name as if they were windows-1252 (WHATWG HTML 13.2.5.80).
#[rustfmt::skip]
const WINDOWS: [u16; 32] = [
    0x20ac, 0x81, 0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160, 0x2039, 0x0152, 0x8d, 0x017d,
    0x8f, 0x90, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014, 0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0x9d,
    0x017e, 0x0178,
];
const UNKNOWN: char = '\u{fffd}';

/// Where a text stands, which says what is decoded in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Between tags: references are decoded, NUL stays.
    Data,
    /// In title and textarea: references are decoded, NUL is U+FFFD.
    Rcdata,
    /// In script, style and their like: no references, NUL is U+FFFD.
    Raw,
    /// In a CDATA section: as it is.
    Cdata,
    /// The value of an attribute.
    Value,
}

/// Appends the text that `raw` stands for at its place.
pub fn decode_into(out: &mut String, raw: &str, place: Place) {
    let references = matches!(place, Place::Data | Place::Rcdata | Place::Value);
    let replaced = matches!(place, Place::Rcdata | Place::Raw | Place::Value);
    let octets = raw.as_bytes();
    let mut start = 0;
    let mut at = 0;
    while let Some(found) = memchr3(b'&', b'\r', 0, &octets[at..]) {
        at += found;
        match octets[at] {
            b'\r' => {
                out.push_str(&raw[start..at]);
                out.push('\n');
                at += if octets.get(at + 1) == Some(&b'\n') { 2 } else { 1 };
                start = at;
            }
            0 => {
                if replaced {
                    out.push_str(&raw[start..at]);
                    out.push(UNKNOWN);
                    start = at + 1;
                }
                at += 1;
            }
            _ if references => {
                let width = reference(out, raw, start, at, place == Place::Value);
                if width > 0 {
                    at += width;
                    start = at;
                } else {
                    at += 1;
                }
            }
            _ => at += 1,
        }
    }
    out.push_str(&raw[start..]);
}

/// Appends what stands before the reference at `at`, and its text; answers how many bytes the reference has. 0: there is
/// none, and nothing is appended.
fn reference(out: &mut String, raw: &str, start: usize, at: usize, in_value: bool) -> usize {
    let rest = &raw.as_bytes()[at + 1..];
    match rest.first() {
        Some(b'#') => match number(&rest[1..]) {
            Some((character, width)) => {
                out.push_str(&raw[start..at]);
                out.push(character);
                width + 2
            }
            None => 0,
        },
        Some(octet) if octet.is_ascii_alphanumeric() => match named(rest) {
            Some((_, width)) if in_value && is_no_reference(rest, width) => 0,
            Some((text, width)) => {
                out.push_str(&raw[start..at]);
                out.push_str(text);
                width + 1
            }
            None => 0,
        },
        _ => 0,
    }
}

/// In a value "&amp=" and "&ampx" are no references, as queries have them (WHATWG HTML 13.2.5.73).
fn is_no_reference(rest: &[u8], width: usize) -> bool {
    rest[width - 1] != b';'
        && rest.get(width).is_some_and(|next| *next == b'=' || next.is_ascii_alphanumeric())
}

/// The longest named reference at the front.
fn named(rest: &[u8]) -> Option<(&'static str, usize)> {
    let bound = rest.len().min(NAME_BYTES_MAX);
    let run =
        rest[..bound].iter().position(|octet| !octet.is_ascii_alphanumeric()).unwrap_or(bound);
    if run < bound && rest[run] == b';' {
        if let Some(text) = entity(&rest[..=run]) {
            return Some((text, run + 1));
        }
    }
    (2..=run.min(BARE_NAME_BYTES_MAX))
        .rev()
        .find_map(|width| entity(&rest[..width]).map(|text| (text, width)))
}

fn entity(name: &[u8]) -> Option<&'static str> {
    let mut slot = slot_of(name);
    loop {
        let (known, text) = ENTITIES[usize::from(SLOTS[slot].checked_sub(1)?)];
        if known.as_bytes() == name {
            return Some(text);
        }
        slot = (slot + 1) % SLOTS.len();
    }
}

const SLOT_BITS: u32 = 13;

/// Rows of `ENTITIES` from 1 on: from where a name leads on, to the first place that is free, which has 0.
static SLOTS: [u16; 1 << SLOT_BITS] = {
    let mut table = [0; 1 << SLOT_BITS];
    let mut row = 0;
    while row < ENTITIES.len() {
        let mut slot = slot_of(ENTITIES[row].0.as_bytes());
        while table[slot] != 0 {
            slot = (slot + 1) % table.len();
        }
        row += 1;
        table[slot] = row as u16;
    }
    table
};

const fn slot_of(name: &[u8]) -> usize {
    let mut number = 0_u32;
    let mut at = 0;
    while at < name.len() {
        number = (number ^ name[at] as u32).wrapping_mul(0x9e37_79b1);
        number ^= number >> 15;
        at += 1;
    }
    (number.wrapping_mul(0x85eb_ca6b) >> (32 - SLOT_BITS)) as usize
}

/// The character that digits behind "&#" name, and their number of bytes with "x" and semicolon.
fn number(rest: &[u8]) -> Option<(char, usize)> {
    let hex = matches!(rest.first(), Some(b'x' | b'X'));
    let radix = if hex { 16 } else { 10 };
    let first = usize::from(hex);
    let mut value: u32 = 0;
    let mut at = first;
    while let Some(digit) = rest.get(at).and_then(|octet| (*octet as char).to_digit(radix)) {
        value = value.saturating_mul(radix).saturating_add(digit).min(0x0011_0000);
        at += 1;
    }
    if at == first {
        return None;
    }
    let width = if rest.get(at) == Some(&b';') { at + 1 } else { at };
    let character = match value {
        0 => UNKNOWN,
        0x80..=0x9f => char::from_u32(u32::from(WINDOWS[value as usize - 0x80])).unwrap_or(UNKNOWN),
        _ => char::from_u32(value).unwrap_or(UNKNOWN),
    };
    Some((character, width))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(raw: &str, place: Place) -> String {
        let mut out = String::new();
        decode_into(&mut out, raw, place);
        out
    }

    #[test]
    fn the_longest_name_is_taken() {
        assert_eq!("\u{ac}it; \u{2209} \u{ac}inx", decoded("&notit; &notin; &notinx", Place::Data));
        assert_eq!("&nosuch; & &; &a", decoded("&nosuch; & &; &a", Place::Data));
    }

    #[test]
    fn a_query_in_a_value_keeps_its_ampersands() {
        assert_eq!("?a&lt=1&copyx&\u{a9}", decoded("?a&lt=1&copyx&amp;&copy", Place::Value));
    }

    #[test]
    fn numbers_are_characters_or_unknown() {
        assert_eq!(
            "A\u{20ac}\u{fffd}\u{fffd}&#;",
            decoded("&#65;&#x80&#xd800;&#99999999999;&#;", Place::Data)
        );
    }

    #[test]
    fn newlines_become_one_and_nul_is_replaced() {
        assert_eq!("a\nb\nc\u{fffd}", decoded("a\r\nb\rc\0", Place::Raw));
        assert_eq!("\0", decoded("\0", Place::Data));
    }

    #[test]
    fn the_table_is_sorted() {
        assert!(ENTITIES.windows(2).all(|two| two[0].0.as_bytes() < two[1].0.as_bytes()));
        assert!(ENTITIES.iter().all(|(name, _)| name.len() <= NAME_BYTES_MAX));
        assert!(ENTITIES
            .iter()
            .all(|(name, _)| name.ends_with(';') || name.len() <= BARE_NAME_BYTES_MAX));
    }
}
