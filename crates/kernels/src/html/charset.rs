//! The encoding of a page, and its text (WHATWG HTML 13.2.3.2): mark, transport, meta, XML declaration,
//! UTF-8 if the bytes are, else windows-1252.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_16BE, UTF_16LE, UTF_8, WINDOWS_1252, X_USER_DEFINED};

use super::tokens::is_space;

/// So far a meta element is looked for before anything is read.
const PRESCAN_BYTES: usize = 1024;

/// A body as text.
pub struct Decoded<'b> {
    /// Characters that are none are U+FFFD.
    pub text: Cow<'b, str>,
    /// By which it was decoded.
    pub encoding: &'static Encoding,
    /// Whether nothing in the text can change that any more.
    pub certain: bool,
}

/// The text of a body whose transport named the encoding `label`.
#[must_use]
pub fn decoded<'b>(body: &'b [u8], label: Option<&str>, markup: bool, xml: bool) -> Decoded<'b> {
    if let Some((encoding, width)) = Encoding::for_bom(body) {
        return Decoded { text: text_of(&body[width..], encoding), encoding, certain: true };
    }
    let named = label.and_then(|label| Encoding::for_label(label.as_bytes()));
    let declared = || if xml { xml_declared(body) } else { None };
    let sniffed = || if markup { prescan(&body[..body.len().min(PRESCAN_BYTES)]) } else { None };
    let mut certain = named.or_else(declared);
    let mut found = certain.or_else(sniffed);
    if found.is_none() && markup {
        // "Get an XML encoding": HTML with a declaration of XML in front and no meta is common.
        certain = xml_declared(body).map(as_declared);
        found = certain;
    }
    let encoding = found.unwrap_or_else(|| guessed(body, markup && !xml));
    Decoded { text: text_of(body, encoding), encoding, certain: certain.is_some() }
}

/// The text of a body in this encoding, without a mark.
#[must_use]
pub fn text_of<'b>(body: &'b [u8], encoding: &'static Encoding) -> Cow<'b, str> {
    let whole = if encoding == UTF_8 { &body[..body.len() - cut_character(body)] } else { body };
    encoding.decode_without_bom_handling(whole).0
}

/// How many bytes at the end begin a character of UTF-8 that was cut off: a body is cut at a limit.
fn cut_character(body: &[u8]) -> usize {
    let tail = &body[body.len().saturating_sub(3)..];
    match std::str::from_utf8(tail) {
        Err(error) if error.error_len().is_none() => tail.len() - error.valid_up_to(),
        // The tail may begin within a character.
        Err(error) => {
            let skipped = error.valid_up_to() + error.error_len().unwrap_or(0);
            match std::str::from_utf8(&tail[skipped..]) {
                Err(later) if later.error_len().is_none() => {
                    tail.len() - skipped - later.valid_up_to()
                }
                _ => 0,
            }
        }
        Ok(_) => 0,
    }
}

/// Pages of HTML that are all ASCII are windows-1252, as browsers and html5lib have it; XML is UTF-8.
fn guessed(body: &[u8], html: bool) -> &'static Encoding {
    match std::str::from_utf8(body) {
        Ok(_) if html && body.is_ascii() => WINDOWS_1252,
        Ok(_) => UTF_8,
        Err(error) if error.error_len().is_none() => UTF_8,
        Err(_) => WINDOWS_1252,
    }
}

/// The encoding of an XML declaration in front.
fn xml_declared(body: &[u8]) -> Option<&'static Encoding> {
    let rest = body.strip_prefix(b"<?xml")?;
    let rest = &rest[..rest.iter().take(256).position(|octet| *octet == b'>')?];
    let at = memchr::memmem::find(rest, b"encoding")?;
    if !at.checked_sub(1).is_some_and(|before| is_space(rest[before])) {
        return None;
    }
    let rest = rest[at + 8..].trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
    let (quote, rest) = rest.split_first()?;
    if !matches!(quote, b'"' | b'\'') {
        return None;
    }
    let end = rest.iter().position(|octet| octet == quote)?;
    Encoding::for_label(&rest[..end])
}

/// "Prescan a byte stream to determine its encoding" (WHATWG HTML 13.2.3.2).
fn prescan(octets: &[u8]) -> Option<&'static Encoding> {
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'<', octets.get(at..)?) {
        at += found;
        let rest = &octets[at + 1..];
        if rest.starts_with(b"!--") {
            // The dashes that begin a comment may also end it.
            at += 3 + memchr::memmem::find(&rest[1..], b"-->")? + 2;
            continue;
        }
        let is_meta = rest.len() > 4
            && rest[..4].eq_ignore_ascii_case(b"meta")
            && (is_space(rest[4]) || rest[4] == b'/');
        if is_meta {
            let mut attributes = Attributes { octets, at: at + 6 };
            if let Some(encoding) = of_meta(&mut attributes) {
                return Some(encoding);
            }
            at = attributes.at;
            continue;
        }
        let name = rest.strip_prefix(b"/").unwrap_or(rest);
        match name.first() {
            Some(octet) if octet.is_ascii_alphabetic() => {
                let from = octets.len() - name.len();
                let ends = |octet: &u8| is_space(*octet) || *octet == b'>';
                let mut attributes = Attributes { octets, at: from + name.iter().position(ends)? };
                while attributes.next().is_some() {}
                at = attributes.at;
            }
            _ if matches!(rest.first(), Some(b'!' | b'/' | b'?')) => {
                at += 1 + memchr::memchr(b'>', rest)?;
            }
            _ => at += 1,
        }
    }
    None
}

fn of_meta(attributes: &mut Attributes<'_>) -> Option<&'static Encoding> {
    let (mut pragma, mut needs_pragma) = (false, None);
    let mut charset: Option<Option<&'static Encoding>> = None;
    let (mut seen_pragma, mut seen_content, mut seen_charset) = (false, false, false);
    while let Some((name, value)) = attributes.next() {
        match name.as_slice() {
            b"http-equiv" if !seen_pragma => {
                seen_pragma = true;
                pragma |= value == b"content-type";
            }
            b"content" if !seen_content => {
                seen_content = true;
                if charset.is_none() {
                    if let Some(encoding) = of_content(&value) {
                        charset = Some(Some(encoding));
                        needs_pragma = Some(true);
                    }
                }
            }
            b"charset" if !seen_charset => {
                seen_charset = true;
                charset = Some(Encoding::for_label(&value));
                needs_pragma = Some(false);
            }
            _ => {}
        }
    }
    if needs_pragma? && !pragma {
        return None;
    }
    charset?.map(as_declared)
}

/// The encoding of a meta element that stands behind what was scanned for one.
#[must_use]
pub fn of_late_meta(charset: Option<&str>, content: Option<&str>) -> Option<&'static Encoding> {
    let found = match (charset, content) {
        (Some(label), _) => Encoding::for_label(label.as_bytes()),
        (None, Some(content)) => of_content(content.to_ascii_lowercase().as_bytes()),
        (None, None) => None,
    };
    found.map(as_declared)
}

/// The encoding that a meta element means.
fn as_declared(encoding: &'static Encoding) -> &'static Encoding {
    if encoding == UTF_16BE || encoding == UTF_16LE {
        UTF_8 // a declaration that reads as ASCII is no UTF-16
    } else if encoding == X_USER_DEFINED {
        WINDOWS_1252
    } else {
        encoding
    }
}

/// "Extract a character encoding from a meta element" (WHATWG HTML 2.4.5); the value is in lower case.
fn of_content(value: &[u8]) -> Option<&'static Encoding> {
    let mut rest = value;
    loop {
        rest = &rest[memchr::memmem::find(rest, b"charset")? + 7..];
        let behind = trimmed(rest);
        let Some(after) = behind.strip_prefix(b"=") else { continue };
        let after = trimmed(after);
        let label = match after.split_first()? {
            (quote @ (b'"' | b'\''), quoted) => {
                &quoted[..quoted.iter().position(|octet| octet == quote)?]
            }
            _ => {
                let ends = |octet: &u8| is_space(*octet) || *octet == b';';
                &after[..after.iter().position(ends).unwrap_or(after.len())]
            }
        };
        return Encoding::for_label(label);
    }
}

fn trimmed(octets: &[u8]) -> &[u8] {
    &octets[octets.iter().position(|octet| !is_space(*octet)).unwrap_or(octets.len())..]
}

/// "Get an attribute" (WHATWG HTML 13.2.3.2): names and values in lower case.
struct Attributes<'b> {
    octets: &'b [u8],
    at: usize,
}

impl Attributes<'_> {
    fn skip(&mut self, also: &[u8]) -> Option<u8> {
        while let Some(octet) = self.octets.get(self.at) {
            if !is_space(*octet) && !also.contains(octet) {
                return Some(*octet);
            }
            self.at += 1;
        }
        None
    }

    fn next(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        if self.skip(b"/")? == b'>' {
            return None;
        }
        let (mut name, mut value) = (Vec::new(), Vec::new());
        loop {
            match *self.octets.get(self.at)? {
                b'=' if !name.is_empty() => break,
                octet if is_space(octet) => {
                    if self.skip(b"")? != b'=' {
                        return Some((name, value));
                    }
                    break;
                }
                b'/' | b'>' => return Some((name, value)),
                octet => name.push(octet.to_ascii_lowercase()),
            }
            self.at += 1;
        }
        self.at += 1;
        match self.skip(b"")? {
            quote @ (b'"' | b'\'') => {
                let from = self.at + 1;
                let end = from + memchr::memchr(quote, &self.octets[from..])?;
                value.extend(self.octets[from..end].iter().map(u8::to_ascii_lowercase));
                self.at = end + 1;
            }
            b'>' => {}
            _ => loop {
                match *self.octets.get(self.at)? {
                    octet if is_space(octet) || octet == b'>' => break,
                    octet => value.push(octet.to_ascii_lowercase()),
                }
                self.at += 1;
            },
        }
        Some((name, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charset(body: &[u8], label: Option<&str>) -> String {
        decoded(body, label, true, false).encoding.name().to_ascii_lowercase()
    }

    #[test]
    fn a_mark_comes_before_the_transport_and_that_before_a_meta() {
        assert_eq!("utf-8", charset(b"\xef\xbb\xbfx", Some("koi8-r")));
        assert_eq!("koi8-r", charset(b"<meta charset=sjis>", Some("koi8-r")));
        assert_eq!("shift_jis", charset(b"<meta charset=sjis>", Some("bogus")));
        assert_eq!("utf-8", charset(b"<meta charset=utf-16le>", None));
    }

    #[test]
    fn a_meta_in_a_comment_or_a_value_is_none() {
        assert_eq!("windows-1252", charset(b"<!--<meta charset=koi8-r>--><p>", None));
        assert_eq!("koi8-r", charset(b"<!--><meta charset=koi8-r>", None));
        assert_eq!("windows-1252", charset(b"<p title='<meta charset=koi8-r>'>", None));
    }

    #[test]
    fn a_pragma_needs_its_content() {
        let with = b"<META HTTP-EQUIV='Content-Type' CONTENT='text/html; charset = \"koi8-r\"'>";
        assert_eq!("koi8-r", charset(with, None));
        assert_eq!("windows-1252", charset(b"<meta content='text/html; charset=koi8-r'>", None));
    }

    #[test]
    fn a_character_that_was_cut_off_is_left_out() {
        for (body, text) in [
            (&b"a\xc3"[..], "a"),
            (b"a\xe2\x82", "a"),
            (b"\xf0\x9f\x98", ""),
            (b"a\xc3\xbc", "a\u{fc}"),
        ] {
            assert_eq!(text, decoded(body, None, false, false).text);
        }
        assert_eq!(WINDOWS_1252, decoded(b"\xfca", None, false, false).encoding);
    }
}
