//! How much of a body is kept, by the type of its content: `outrider.fetch.type_limits` has the same rule in Python.

use std::collections::HashMap;

/// Bytes of a body by the type of its content: `text/html`, `image/*`, or `*` for any other one.
#[derive(Debug)]
pub struct TypeLimits {
    by_type: HashMap<Vec<u8>, usize>,
}

impl TypeLimits {
    /// The names are in lower case; of two that are equal the later one holds.
    pub fn new(limits: Vec<(String, usize)>) -> Self {
        Self { by_type: limits.into_iter().map(|(name, most)| (name.into_bytes(), most)).collect() }
    }

    /// The limit of a Content-Type field, of an answer without one by an empty value: of its type, its family, or any.
    pub(crate) fn of(&self, content_type: &[u8]) -> Option<usize> {
        let essence = content_type.split(|&byte| byte == b';').next().unwrap_or_default();
        let essence = trimmed(essence).to_ascii_lowercase();
        let family = essence.split(|&byte| byte == b'/').next().unwrap_or_default();
        let family = [family, b"/*"].concat();
        let names: [&[u8]; 3] = [&essence, &family, b"*"];
        names.iter().find_map(|&name| self.by_type.get(name).copied())
    }
}

/// Without the blanks around it.
fn trimmed(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_goes_before_its_family_and_that_before_any_other_one() {
        let limits = [("text/html", 1), ("text/*", 2), ("*", 3)];
        let limits = TypeLimits::new(limits.map(|(name, most)| (name.to_owned(), most)).into());
        let found = ["TEXT/Html ; charset=x", "text/plain", "text", "image/png", "", ";text/html"]
            .map(|content_type| limits.of(content_type.as_bytes()));
        assert_eq!([Some(1), Some(2), Some(2), Some(3), Some(3), Some(3)], found);
        assert_eq!(None, TypeLimits::new(vec![("a/b".to_owned(), 1)]).of(b"a/c"));
    }
}
