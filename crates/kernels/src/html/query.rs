//! The query of an address in the encoding of its page (WHATWG HTML "encoding-parse a URL", URL Standard
//! "percent-encode after encoding"). Semantics are written at the twin, `src/outrider/kernels/query.py`.

use encoding_rs::{EncoderResult, Encoding, UTF_8};

/// The encoding that the queries of a page's addresses take; None where they are UTF-8 as paths are.
#[must_use]
pub fn of_page(encoding: &'static Encoding) -> Option<&'static Encoding> {
    let output = encoding.output_encoding();
    (output != UTF_8).then_some(output)
}

/// Rewrites the query of the address that begins at `start` and ends the text, if it holds characters beyond ASCII.
pub fn encode(text: &mut String, start: usize, encoding: &'static Encoding) {
    let address = &text[start..];
    if address.is_ascii() {
        return;
    }
    let end = address.find('#').unwrap_or(address.len());
    let Some(mark) = address[..end].find('?') else { return };
    let query = &address[mark + 1..end];
    if query.is_ascii() {
        return;
    }
    let encoded = percent_encoded(query, encoding);
    text.replace_range(start + mark + 1..start + end, &encoded);
}

fn percent_encoded(query: &str, encoding: &'static Encoding) -> String {
    let query: String = query.chars().filter(|one| !matches!(one, '\t' | '\n' | '\r')).collect();
    let mut encoder = encoding.new_encoder();
    let mut out = String::with_capacity(3 * query.len());
    let mut octets = [0; 256];
    let mut at = 0;
    loop {
        let (result, read, written) =
            encoder.encode_from_utf8_without_replacement(&query[at..], &mut octets, true);
        at += read;
        octets[..written].iter().for_each(|octet| push(&mut out, *octet));
        match result {
            EncoderResult::InputEmpty => return out,
            EncoderResult::OutputFull => {}
            EncoderResult::Unmappable(character) => {
                out.push_str(&format!("%26%23{}%3B", u32::from(character)));
            }
        }
    }
}

/// Appends an octet, as a triplet if it is in the special-query percent-encode set.
fn push(out: &mut String, octet: u8) {
    const DIGITS: [u8; 16] = *b"0123456789ABCDEF";
    if matches!(octet, 0..=b' ' | b'"' | b'#' | b'<' | b'>' | b'\'' | 0x7f..) {
        out.push('%');
        out.push(char::from(DIGITS[usize::from(octet >> 4)]));
        out.push(char::from(DIGITS[usize::from(octet & 15)]));
    } else {
        out.push(char::from(octet));
    }
}

#[cfg(test)]
mod tests {
    use super::{encode, of_page};
    use encoding_rs::Encoding;

    fn encoded(address: &str, label: &str) -> String {
        let mut text = address.to_owned();
        if let Some(encoding) = Encoding::for_label(label.as_bytes()).and_then(of_page) {
            encode(&mut text, 0, encoding);
        }
        text
    }

    #[test]
    fn the_query_alone_takes_the_encoding() {
        assert_eq!("/\u{e9}?%E9#\u{e9}?\u{e9}", encoded("/\u{e9}?\u{e9}#\u{e9}?\u{e9}", "latin1"));
        assert_eq!("/\u{e9}#?\u{e9}", encoded("/\u{e9}#?\u{e9}", "latin1"));
        assert_eq!("?%93%FA%96{", encoded("?\u{65e5}\u{672c}", "sjis"));
    }

    #[test]
    fn what_the_encoding_lacks_is_a_reference() {
        assert_eq!("?%26%239731%3B%E9", encoded("?\u{2603}\u{e9}", "latin1"));
        assert_eq!("?%1B$BF|%1B(B%26%239731%3B", encoded("?\u{65e5}\u{2603}", "iso-2022-jp"));
    }

    #[test]
    fn utf_16_and_utf_8_stay() {
        for label in ["utf-8", "utf-16le", "utf-16be", "iso-2022-kr"] {
            assert_eq!("?\u{e9}", encoded("?\u{e9}", label));
        }
    }
}
