//! Registrable domains of host names by the rules of a public suffix list, which the caller hands over.
//!
//! Every rule and everything behind one of its dots stands in one table under its hash, which is taken from a name's
//! end to its front: a host is read backwards once, with a look into the table at each dot, until no rule is longer.
//! The table never changes, so that no host, whoever names it, makes a look longer. Semantics are written at the twin,
//! `src/outrider/kernels/suffixes.py`.

use std::collections::HashMap;

/// The name is a rule as it stands.
const EXACT: u8 = 1;
/// The name and any label before it are a public suffix: `*.name`.
const WILD: u8 = 2;
/// The name is no public suffix, the part behind its first dot is: `!name`.
const EXCEPTION: u8 = 4;
/// There are names with more labels that end in this one.
const LONGER: u8 = 8;

const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
const FREE: Slot = Slot { tag: 0, start: 0, length: 0, marks: 0 };

/// What a host's registrable domain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// What begins at this byte of the host, without the dot that may end it.
    From(usize),
    /// There is none.
    Missing,
    /// The host is not ASCII: that takes IDNA.
    Odd,
}

/// A place of the table; one of length 0 is free.
#[derive(Clone, Copy)]
struct Slot {
    tag: u32,
    start: u32,
    length: u16,
    marks: u8,
}

/// The rules of one public suffix list.
pub struct PublicSuffixes {
    rules: Box<[u8]>,
    slots: Box<[Slot]>,
    shift: u32,
}

impl PublicSuffixes {
    /// A table of rules in lower-case ASCII, one per line.
    ///
    /// # Errors
    /// The first line that is no rule, in words.
    pub fn of(rules: &[u8]) -> Result<Self, String> {
        if u32::try_from(rules.len()).is_err() {
            return Err(format!("rules of {} bytes are more than a table holds", rules.len()));
        }
        // Each name by where it begins; its end is that of its line.
        let mut names: HashMap<&[u8], (u32, u8)> = HashMap::new();
        let mut start = 0;
        let lines =
            rules.split(|&byte| byte == b'\n').take(if rules.is_empty() { 0 } else { usize::MAX });
        for (number, line) in lines.enumerate() {
            if !is_rule(line) {
                return Err(format!("line {number} is no rule in lower-case ASCII"));
            }
            let mut mark = |from: usize, marks: u8| {
                let mut longer = marks;
                for at in begins(&line[from..]).map(|at| from + at) {
                    let name = names.entry(&line[at..]).or_insert(((start + at) as u32, 0));
                    name.1 |= longer;
                    longer = LONGER;
                }
            };
            mark(0, EXACT);
            if line.starts_with(b"!") {
                mark(1, EXCEPTION);
            }
            if line.starts_with(b"*.") {
                mark(2, WILD);
            }
            start += line.len() + 1;
        }
        let size = (2 * names.len()).next_power_of_two().max(2);
        let shift = u64::BITS - size.trailing_zeros();
        let mut slots = vec![FREE; size].into_boxed_slice();
        for (name, (start, marks)) in names {
            let hash = name.iter().rev().fold(0, |hash, &byte| mixed(hash, byte));
            let mut place = (hash >> shift) as usize;
            while slots[place].length != 0 {
                place = (place + 1) % size;
            }
            slots[place] = Slot { tag: hash as u32, start, length: name.len() as u16, marks };
        }
        Ok(Self { rules: rules.into(), slots, shift })
    }

    /// The registrable domain of a host.
    #[must_use]
    pub fn domain(&self, host: &[u8]) -> Domain {
        if !host.is_ascii() {
            return Domain::Odd;
        }
        let name = host.strip_suffix(b".").unwrap_or(host);
        if !is_name(name) {
            return Domain::Missing;
        }
        match self.suffix_start(name) {
            // The label before it begins behind a dot or at the very front.
            Some(suffix) if suffix > 0 => Domain::From(label_start(name, suffix - 1)),
            _ => Domain::Missing,
        }
    }

    /// Where the public suffix of a name begins; None when no label is left for it.
    fn suffix_start(&self, name: &[u8]) -> Option<usize> {
        let last = label_start(name, name.len());
        // What no rule names is its last label: publicsuffix.org calls that the rule "*".
        let mut found = Some(last);
        let mut shorter = None;
        let (mut start, mut end, mut hash) = (last, name.len(), 0);
        loop {
            hash = name[start..end]
                .iter()
                .rev()
                .fold(hash, |hash, &byte| mixed(hash, byte.to_ascii_lowercase()));
            let marks = self.marks(hash, &name[start..]);
            // The longest name that a rule marks decides, so each overrules the ones before.
            if marks & EXCEPTION != 0 {
                found = shorter;
            } else if marks & WILD != 0 && start > 0 {
                found = Some(label_start(name, start - 1));
            } else if marks & (EXACT | WILD) != 0 {
                found = Some(start);
            }
            if marks & LONGER == 0 || start == 0 {
                return found;
            }
            shorter = Some(start);
            hash = mixed(hash, b'.');
            end = start - 1;
            start = label_start(name, end);
        }
    }

    /// What stands in the table about a name, 0 if nothing does.
    fn marks(&self, hash: u64, name: &[u8]) -> u8 {
        let mut place = (hash >> self.shift) as usize;
        loop {
            let slot = self.slots[place];
            if slot.length == 0 {
                return 0;
            }
            if slot.tag == hash as u32 && slot.length as usize == name.len() {
                let start = slot.start as usize;
                if self.rules[start..start + name.len()].eq_ignore_ascii_case(name) {
                    return slot.marks;
                }
            }
            place = (place + 1) % self.slots.len();
        }
    }
}

fn mixed(hash: u64, byte: u8) -> u64 {
    (hash.rotate_left(5) ^ u64::from(byte)).wrapping_mul(MULTIPLIER)
}

/// Where the label begins that ends before `end`.
fn label_start(name: &[u8], end: usize) -> usize {
    name[..end].iter().rposition(|&byte| byte == b'.').map_or(0, |dot| dot + 1)
}

/// Where the labels of a name begin, from its front.
fn begins(name: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let dots = name.iter().enumerate().filter(|(_, &byte)| byte == b'.').map(|(dot, _)| dot + 1);
    std::iter::once(0).chain(dots)
}

/// Whether a line is printable ASCII in lower case without an empty label, a "!" before it aside.
fn is_rule(line: &[u8]) -> bool {
    let name = line.strip_prefix(b"!").unwrap_or(line);
    line.len() <= usize::from(u16::MAX)
        && line.iter().all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase())
        && name.split(|&byte| byte == b'.').all(|label| !label.is_empty())
}

/// Whether a host is a name of several labels, none of them empty, and no address.
fn is_name(name: &[u8]) -> bool {
    let (mut before, mut labels, mut only_digits) = (b'.', 1_usize, true);
    for &byte in name {
        if byte == b'.' {
            if before == b'.' {
                return false;
            }
            labels += 1;
            only_digits = true;
        } else {
            if byte == b':' {
                return false;
            }
            only_digits &= byte.is_ascii_digit();
        }
        before = byte;
    }
    // WHATWG: a name whose last label is a number is an IPv4 address, or nothing.
    before != b'.' && labels > 1 && !only_digits && name[0] != b'['
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain<'a>(rules: &str, host: &'a str) -> Option<&'a str> {
        let suffixes = PublicSuffixes::of(rules.as_bytes()).expect("these are rules");
        match suffixes.domain(host.as_bytes()) {
            Domain::From(start) => Some(&host[start..]),
            _ => None,
        }
    }

    #[test]
    fn the_longest_rule_decides() {
        let rules = "com\nuk\nco.uk\nck\n*.ck\n!www.ck\nb.c.d.com";
        assert_eq!(Some("a.com"), domain(rules, "x.a.com"));
        assert_eq!(Some("a.co.uk"), domain(rules, "x.a.co.uk"));
        assert_eq!(Some("a.b.ck"), domain(rules, "x.a.b.ck"));
        assert_eq!(Some("www.ck"), domain(rules, "x.www.ck"));
        assert_eq!(Some("d.com"), domain(rules, "a.c.d.com"));
        assert_eq!(Some("a.b.c.d.com"), domain(rules, "x.a.b.c.d.com"));
        assert_eq!(Some("b.unknown"), domain(rules, "a.b.unknown"));
    }

    #[test]
    fn suffixes_addresses_and_empty_labels_have_no_domain() {
        for host in
            ["", ".", "com", "co.uk", "b.ck", "1.2.3.4", "[::1.a]", "a..com", ".a.com", "a.com.."]
        {
            assert_eq!(None, domain("com\nco.uk\n*.ck", host), "{host}");
        }
    }

    #[test]
    fn a_table_without_rules_takes_last_labels() {
        assert_eq!(Some("b.c"), domain("", "a.b.c"));
    }

    #[test]
    fn a_line_that_is_no_rule_is_named() {
        for rules in ["com\n", "com\nA", "com\n!", "com\na..b", "com\n*.", "com\n\u{e9}"] {
            let error = PublicSuffixes::of(rules.as_bytes()).err().expect("that is no rule");
            assert!(error.contains("line 1"), "{error}");
        }
    }
}
