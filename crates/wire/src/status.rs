//! Status codes of gRPC, and their message as a header.

/// The codes that this crate itself sends.
pub(crate) const DEADLINE_EXCEEDED: u32 = 4;
pub(crate) const RESOURCE_EXHAUSTED: u32 = 8;
pub(crate) const UNIMPLEMENTED: u32 = 12;
pub(crate) const INTERNAL: u32 = 13;

/// How a call ends.
pub struct Status {
    /// The code of gRPC.
    pub code: u32,
    /// The reason, for people.
    pub message: String,
    /// The reason as a document in base64, which is the trailer `outrider-problem-bin`; empty without one.
    pub problem: String,
}

impl Status {
    pub(crate) fn of(code: u32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), problem: String::new() }
    }
}

/// Longer messages are cut: a header block must fit into one frame.
const MESSAGE_BYTES_MAX: usize = 2_000;

/// The value of `grpc-message`: percent-encoded, all but visible ASCII.
pub(crate) fn encoded(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for byte in message.bytes().take(MESSAGE_BYTES_MAX) {
        if (b' '..=b'~').contains(&byte) && byte != b'%' {
            text.push(byte as char);
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// The duration of `grpc-timeout`, in microseconds; None for a value that is not one.
pub(crate) fn timeout(value: &str) -> Option<u64> {
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    let micros = match unit {
        "H" => number * 3_600_000_000,
        "M" => number * 60_000_000,
        "S" => number * 1_000_000,
        "m" => number * 1_000,
        "u" => number,
        "n" => number / 1_000,
        _ => return None,
    };
    Some(micros)
}

#[cfg(test)]
mod tests {
    use super::{encoded, timeout};

    #[test]
    fn a_message_is_percent_encoded() {
        assert_eq!(encoded("key é: 100%\n"), "key %C3%A9: 100%25%0A");
    }

    #[test]
    fn a_timeout_has_a_number_and_a_unit() {
        assert_eq!(timeout("250m"), Some(250_000));
        assert_eq!(timeout("2H"), Some(7_200_000_000));
        for wrong in ["", "m", "5", "123456789S", "-1S", "é"] {
            assert_eq!(timeout(wrong), None, "{wrong}");
        }
    }
}
