//! Numbers as Redis reads and writes them.

/// An integer in Redis's strict form: an optional `-`, no `+`, no leading zero, no space.
pub fn integer(bytes: &[u8]) -> Option<i64> {
    let (negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits == b"0" && !negative {
        return Some(0);
    }
    if digits.is_empty() || digits.len() > 19 || digits[0] == b'0' {
        return None;
    }
    let mut magnitude = 0u64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // 19 digits stay below 10^19, which fits.
        magnitude = magnitude * 10 + u64::from(digit - b'0');
    }
    if negative {
        0i64.checked_sub_unsigned(magnitude)
    } else {
        i64::try_from(magnitude).ok()
    }
}

/// An unsigned integer in decimal, of at most 20 digits.
pub fn unsigned(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() || bytes.len() > 20 || !bytes.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// The decimal form of an integer.
pub fn integer_text(value: i64) -> txn::Blob {
    txn::Blob::new(itoa::Buffer::new().format(value).as_bytes())
}

/// A floating-point number: what C's `strtod` takes from the whole text (hexadecimal excepted), but not NaN.
pub fn float(bytes: &[u8]) -> Option<f64> {
    let value: f64 = std::str::from_utf8(bytes).ok()?.parse().ok()?;
    if value.is_nan() || (value.is_infinite() && bytes.iter().any(u8::is_ascii_digit)) {
        return None;
    }
    Some(value)
}

/// The text of a floating-point number: the shortest that reads back as the same, integers without a fraction.
pub fn float_text(value: f64) -> String {
    if value.is_infinite() {
        return String::from(if value > 0.0 { "inf" } else { "-inf" });
    }
    if value.is_nan() {
        return String::from("nan");
    }
    if value == 0.0 && value.is_sign_negative() {
        return String::from("-0");
    }
    if value == value.trunc() && value.abs() < 1e17 {
        return itoa::Buffer::new().format(value as i64).to_owned();
    }
    let text = ryu::Buffer::new().format_finite(value).to_owned();
    match text.split_once('e') {
        Some((digits, exponent)) if !exponent.starts_with('-') => {
            format!(
                "{}e+{exponent}",
                digits.strip_suffix(".0").unwrap_or(digits)
            )
        }
        _ => text,
    }
}

/// The text of a floating-point number with up to 17 digits behind the point and no exponent: how Redis shows what it calls
/// human.
pub fn plain_float_text(value: f64) -> String {
    let text = format!("{value:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let text = if text == "-0" { "0" } else { text };
    text.to_owned()
}

/// The sum of two numbers that INCRBYFLOAT and HINCRBYFLOAT reply and store, or why there is none.
///
/// Redis adds in 80-bit floating point and prints up to 17 fractional digits, so that 0.1 + 0.2 is 0.3. Where both
/// numbers have at most 17 fractional digits and are below 10^20, we add them exactly, as decimals: the same text where
/// 80 bits suffice, and no noise where they don't. Other numbers are added as 64-bit floats.
pub fn float_sum(old: &[u8], increment: &[u8]) -> Result<String, FloatSumError> {
    let old_float = float(old).ok_or(FloatSumError::NotAFloat)?;
    let increment_float = float(increment).ok_or(FloatSumError::NotAFloat)?;
    if let (Some(a), Some(b)) = (decimal(old), decimal(increment)) {
        return Ok(decimal_text(a + b));
    }
    let sum = old_float + increment_float;
    if !sum.is_finite() {
        return Err(FloatSumError::NotFinite);
    }
    Ok(format!("{sum}"))
}

/// Why [`float_sum`] has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatSumError {
    /// One of the texts is not a number.
    NotAFloat,
    /// The sum is infinite or not a number.
    NotFinite,
}

const FRACTION_DIGITS: u32 = 17;
const ONE: i128 = 10i128.pow(FRACTION_DIGITS);

/// A plain decimal number (no exponent) as a multiple of 10^-17.
fn decimal(bytes: &[u8]) -> Option<i128> {
    const WHOLE_DIGITS_MAX: usize = 20;
    let (negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let dot = digits
        .iter()
        .position(|&b| b == b'.')
        .unwrap_or(digits.len());
    let (whole, fraction) = (&digits[..dot], digits.get(dot + 1..).unwrap_or(&[]));
    if whole.len() > WHOLE_DIGITS_MAX || fraction.len() > FRACTION_DIGITS as usize {
        return None;
    }
    let mut value = 0i128;
    for &digit in whole.iter().chain(fraction) {
        value = value * 10 + i128::from(digit.is_ascii_digit().then(|| digit - b'0')?);
    }
    value *= 10i128.pow(FRACTION_DIGITS - fraction.len() as u32);
    Some(if negative { -value } else { value })
}

fn decimal_text(value: i128) -> String {
    let sign = if value < 0 { "-" } else { "" };
    let (whole, fraction) = (
        value.unsigned_abs() / ONE as u128,
        value.unsigned_abs() % ONE as u128,
    );
    let text = format!("{sign}{whole}.{fraction:017}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_strict() {
        for (text, value) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("99999999999999999999", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("01", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("1a", None),
        ] {
            assert_eq!(integer(text.as_bytes()), value, "{text:?}");
        }
    }

    #[test]
    fn float_sums_are_decimal() {
        for (a, b, sum) in [
            ("0.1", "0.2", Ok("0.3")),
            ("10.50", "0.1", Ok("10.6")),
            ("10.6", "-5", Ok("5.6")),
            ("5.0e3", "2.0e2", Ok("5200")),
            ("3", "-3", Ok("0")),
            ("-0.5", "0.25", Ok("-0.25")),
            ("inf", "1", Err(FloatSumError::NotFinite)),
            ("1", "nan", Err(FloatSumError::NotAFloat)),
            ("1", " 1", Err(FloatSumError::NotAFloat)),
            ("", "1", Err(FloatSumError::NotAFloat)),
            (".", "1", Err(FloatSumError::NotAFloat)),
            ("1e308", "1e308", Err(FloatSumError::NotFinite)),
            ("1e400", "1", Err(FloatSumError::NotAFloat)),
        ] {
            assert_eq!(
                float_sum(a.as_bytes(), b.as_bytes()),
                sum.map(str::to_owned),
                "{a} + {b}"
            );
        }
    }

    #[test]
    fn float_texts_are_short() {
        for (value, text) in [
            (3.0, "3"),
            (3.5, "3.5"),
            (-0.1, "-0.1"),
            (-0.0, "-0"),
            (1e20, "1e+20"),
            (1.5e-9, "1.5e-9"),
        ] {
            assert_eq!(float_text(value), text);
        }
        for (value, text) in [
            (3.0, "3"),
            (-0.0, "0"),
            (100.0, "100"),
            (1e-18, "0"),
            (13.361_389_338_970_184, "13.36138933897018433"),
        ] {
            assert_eq!(plain_float_text(value), text);
        }
    }
}
