//! The fields of a response head.
//!
//! Semantics are written at the twin, `src/outrider/kernels/fields.py`.

use std::borrow::Cow;

use memchr::memchr;

/// The fields of a head, name and value each, in order. The status line is none of them.
pub fn fields(head: &[u8]) -> impl Iterator<Item = (&[u8], Cow<'_, [u8]>)> {
    let (_, mut rest) = line_of(head);
    let mut any = false;
    std::iter::from_fn(move || {
        while let Some(lines) = rest {
            let (line, behind) = line_of(lines);
            rest = behind;
            if any && is_folded(line) {
                continue; // it was taken with the field before
            }
            let Some(colon) = memchr(b':', line).filter(|colon| *colon > 0) else { continue };
            any = true;
            let name = trimmed_end(&line[..colon], b" \t");
            let value = trimmed(&line[colon + 1..], b" \t\r");
            return Some((name, with_folded(value, rest)));
        }
        None
    })
}

/// The value with the folded lines that belong to its field (obs-fold, RFC 9112 section 5.2): those up to the next
/// field, whatever lies between.
fn with_folded<'a>(value: &'a [u8], mut rest: Option<&'a [u8]>) -> Cow<'a, [u8]> {
    let mut value = Cow::Borrowed(value);
    while let Some(lines) = rest {
        let (line, behind) = line_of(lines);
        if is_folded(line) {
            let piece = trimmed(line, b" \t\r");
            if !value.is_empty() && !piece.is_empty() {
                value.to_mut().push(b' ');
            }
            if !piece.is_empty() {
                value.to_mut().extend_from_slice(piece);
            }
        } else if memchr(b':', line).is_some_and(|colon| colon > 0) {
            break;
        }
        rest = behind;
    }
    value
}

/// The first line, without its line feed, and what lies behind it.
fn line_of(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr(b'\n', text) {
        Some(end) => (&text[..end], Some(&text[end + 1..])),
        None => (text, None),
    }
}

fn is_folded(line: &[u8]) -> bool {
    matches!(line.first(), Some(b' ' | b'\t'))
}

fn trimmed<'a>(text: &'a [u8], octets: &[u8]) -> &'a [u8] {
    let text = trimmed_end(text, octets);
    let begin = text.iter().position(|octet| !octets.contains(octet)).unwrap_or(text.len());
    &text[begin..]
}

fn trimmed_end<'a>(text: &'a [u8], octets: &[u8]) -> &'a [u8] {
    let end = text.iter().rposition(|octet| !octets.contains(octet)).map_or(0, |last| last + 1);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(head: &[u8]) -> String {
        let field = |(name, value): (&[u8], Cow<'_, [u8]>)| {
            format!("{}={};", String::from_utf8_lossy(name), String::from_utf8_lossy(&value))
        };
        fields(head).map(field).collect()
    }

    #[test]
    fn fields_stand_behind_the_status_line() {
        assert_eq!("A=1;b=2 : 3;", shown(b"HTTP/1.1 200: OK\r\nA: 1\r\nb :\t2 : 3 \r\n\r\n"));
        assert_eq!("", shown(b""));
        assert_eq!("A=;", shown(b"\nno colon\n: no name\nA:"));
    }

    #[test]
    fn folded_lines_go_on_with_the_field_before() {
        assert_eq!("A=1 2 3:;B=4;", shown(b"\nA: 1\r\n 2\r\n\t3:\r\nB: 4\n"));
        assert_eq!("A=2;", shown(b"\nA:\n \nnothing\n 2"));
        assert_eq!(" A=1;", shown(b"\n A: 1\n"));
    }
}
