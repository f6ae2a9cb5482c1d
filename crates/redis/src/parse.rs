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
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// An unsigned integer in decimal, of at most 20 digits.
pub fn unsigned(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() || bytes.len() > 20 || !bytes.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// What C's `strtoul` makes of a decimal number, nothing at all and negative numbers included, but not of
/// spaces.
pub fn wrapping_unsigned(bytes: &[u8]) -> Option<u64> {
    match bytes {
        [] => Some(0),
        [b'-', digits @ ..] => unsigned(digits).map(u64::wrapping_neg),
        [b'+', digits @ ..] | digits => unsigned(digits),
    }
}

/// The decimal form of an integer.
pub fn integer_text(value: i64) -> txn::Blob {
    txn::Blob::new(itoa::Buffer::new().format(value).as_bytes())
}

/// A text without the spaces that C takes before a number.
pub fn without_spaces(bytes: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'\x0b';
    let start = bytes.iter().position(|byte| !is_space(byte));
    start.map_or(&[], |start| &bytes[start..])
}

/// A floating-point number: what C's `strtod` takes from the whole text, if that fits, but not NaN.
pub fn float(bytes: &[u8]) -> Option<f64> {
    let value = nearest_float(bytes)?;
    let has_overflown = value.is_infinite() && bytes.iter().any(u8::is_ascii_digit);
    let has_vanished = value == 0.0 && has_digits_set(bytes);
    (!value.is_nan() && !has_overflown && !has_vanished).then_some(value)
}

/// What is nearest to a floating-point number: infinite if that is too large, 0 if it is too small.
pub fn nearest_float(bytes: &[u8]) -> Option<f64> {
    let (sign, magnitude) = match bytes {
        [b'-', magnitude @ ..] => (-1.0, magnitude),
        [b'+', magnitude @ ..] => (1.0, magnitude),
        magnitude => (1.0, magnitude),
    };
    match magnitude {
        [b'0', b'x' | b'X', digits @ ..] => Some(sign * hexadecimal(digits)?),
        _ => std::str::from_utf8(bytes).ok()?.parse().ok(),
    }
}

/// Whether a number's digits, those of its exponent excepted, are not all 0.
fn has_digits_set(bytes: &[u8]) -> bool {
    let is_hexadecimal = bytes.iter().any(|byte| matches!(byte, b'x' | b'X'));
    let exponent = if is_hexadecimal { b'p' } else { b'e' };
    let digits = bytes.iter().take_while(|byte| !byte.eq_ignore_ascii_case(&exponent));
    let is_set = |byte: &u8| byte.is_ascii_hexdigit() && *byte != b'0';
    digits.into_iter().any(is_set)
}

/// What stands behind `0x`: hexadecimal digits with or without a point, and the power of two that they are
/// multiplied by, with or without `p` and a number. Rounded to the nearest, ties to even, as C does.
fn hexadecimal(digits: &[u8]) -> Option<f64> {
    /// Beyond this the numbers of the digits that fit into memory change nothing.
    const EXPONENT_MAX: i64 = 1 << 40;
    let end = digits.iter().position(|byte| matches!(byte, b'p' | b'P'));
    let (digits, exponent) = digits.split_at(end.unwrap_or(digits.len()));
    let mut exponent = match exponent {
        [] => 0,
        [_, b'-', exponent @ ..] => -power(exponent, EXPONENT_MAX)?,
        [_, b'+', exponent @ ..] | [_, exponent @ ..] => power(exponent, EXPONENT_MAX)?,
    };
    let (mut mantissa, mut has_digits, mut is_behind_point) = (0u64, false, false);
    for &byte in digits {
        if byte == b'.' && !is_behind_point {
            is_behind_point = true;
            continue;
        }
        let digit = u64::from((byte as char).to_digit(16)?);
        has_digits = true;
        if mantissa >> 60 == 0 {
            mantissa = mantissa << 4 | digit;
            exponent -= if is_behind_point { 4 } else { 0 };
        } else {
            // No more than whether there is something decides how to round.
            mantissa |= u64::from(digit != 0);
            exponent += if is_behind_point { 0 } else { 4 };
        }
    }
    has_digits.then(|| scaled(mantissa, exponent))
}

/// Decimal digits as a number of at most `most`.
fn power(digits: &[u8], most: i64) -> Option<i64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |power: i64, digit: &u8| (power * 10 + i64::from(digit - b'0')).min(most);
    Some(digits.iter().fold(0, add))
}

/// `mantissa` times two to the power of `exponent`, rounded to the nearest, ties to even.
fn scaled(mantissa: u64, exponent: i64) -> f64 {
    /// The exponent of the least number above 0.
    const LEAST: i64 = -1074;
    if mantissa == 0 {
        return 0.0;
    }
    let first = exponent + i64::from(mantissa.ilog2());
    if first > i64::from(f64::MAX_EXP) {
        return f64::INFINITY;
    }
    // The exponent of the last bit that is kept, and how many bits are lost.
    let last = (first - i64::from(f64::MANTISSA_DIGITS) + 1).max(LEAST);
    let kept = match last - exponent {
        lost @ ..=0 => mantissa << -lost,
        lost @ 1..=64 => {
            let mantissa = u128::from(mantissa);
            let (kept, rest, half) = (mantissa >> lost, mantissa & ((1 << lost) - 1), 1 << (lost - 1));
            let is_up = rest > half || rest == half && kept % 2 == 1;
            kept as u64 + u64::from(is_up)
        }
        _ => 0,
    };
    let unit = match last {
        ..-1022 => f64::from_bits(1 << (last - LEAST)),
        _ => f64::from_bits(((last + 1023) as u64) << 52),
    };
    // Exact: what was kept fits.
    kept as f64 * unit
}

/// The text of a floating-point number: the shortest that reads back as the same, as Redis 7.2 writes it. (By
/// Grisu's digits, and with an exponent where its `fpconv` has one.)
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
    /// Integers up to here are written as such.
    const INTEGER_MAX: f64 = (1u64 << 62) as f64;
    if value == value.trunc() && value.abs() <= INTEGER_MAX {
        return itoa::Buffer::new().format(value as i64).to_owned();
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let mut shortest = ryu::Buffer::new();
    let (digits, power) = shortest_digits(shortest.format_finite(value.abs()));
    // The exponent if one digit stands before the point.
    let exponent = power + digits.len() as i32 - 1;
    let magnitude = exponent.unsigned_abs() as usize;
    if power >= 0 && magnitude < digits.len() + 7 {
        return format!("{sign}{digits}{:0>1$}", "", power as usize);
    }
    if power < 0 && (power > -7 || magnitude < 4) {
        return match exponent {
            ..0 => format!("{sign}0.{:0>1$}{digits}", "", magnitude - 1),
            _ => {
                let (whole, fraction) = digits.split_at(magnitude + 1);
                format!("{sign}{whole}.{fraction}")
            }
        };
    }
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    format!("{sign}{first}{point}{rest}e{exponent:+}")
}

/// The digits of a positive number, from the first to the last that is not 0, and the power of ten that they
/// are multiplied by.
fn shortest_digits(text: &str) -> (String, i32) {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, fraction].concat();
    let significant = digits.trim_end_matches('0');
    let zeros = (digits.len() - significant.len()) as i32;
    let power = exponent.parse().unwrap_or(0) - fraction.len() as i32 + zeros;
    (significant.trim_start_matches('0').to_owned(), power)
}

/// The text of a floating-point number with up to 17 digits behind the point and no exponent: how Redis shows
/// what it calls human.
pub fn plain_float_text(value: f64) -> String {
    let text = format!("{value:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let text = if text == "-0" { "0" } else { text };
    text.to_owned()
}

/// A number that is to be added: also one that is too small for 64 bits, which adds nothing. Redis has 80
/// bits for it.
pub fn term(bytes: &[u8]) -> Option<f64> {
    float(bytes).or_else(|| nearest_float(bytes).filter(|&value| value == 0.0))
}

/// The sum of two numbers that INCRBYFLOAT and HINCRBYFLOAT reply and store, or why there is none.
///
/// Redis adds in 80-bit floating point and prints up to 17 fractional digits, so that 0.1 + 0.2 is 0.3. Where
/// both numbers have at most 17 fractional digits and are below 10^20, we add them exactly, as decimals: the
/// same text where 80 bits suffice, and no noise where they don't. Larger ones are rounded to the 64 digits
/// of 80 bits' mantissa, and their sum too, up to 10^37: they have no fraction then. Other numbers are added
/// as 64-bit floats.
pub fn float_sum(old: &[u8], increment: &[u8]) -> Result<String, FloatSumError> {
    /// From here on Redis reads no text as a number.
    const TEXT_BYTES_END: usize = 5 * 1024;
    /// From here on a mantissa of 64 bits has no fraction.
    const NO_FRACTION: i128 = 1 << 64;
    if old.len().max(increment.len()) >= TEXT_BYTES_END {
        return Err(FloatSumError::NotAFloat);
    }
    let old_float = term(old).ok_or(FloatSumError::NotAFloat)?;
    let increment_float = term(increment).ok_or(FloatSumError::NotAFloat)?;
    if let (Some(a), Some(b)) = (decimal(old), decimal(increment)) {
        return Ok(decimal_text(a + b));
    }
    if let (Some(a), Some(b)) = (extended(old), extended(increment))
        && a.abs().max(b.abs()) >= NO_FRACTION
    {
        return Ok(rounded(a + b).to_string());
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

/// A number in decimal: its sign, its digits from the first to the last that is not 0, and the power of ten
/// that they are multiplied by.
struct Decimal {
    is_negative: bool,
    digits: Vec<u8>,
    power: i64,
}

impl Decimal {
    fn of(bytes: &[u8]) -> Option<Decimal> {
        /// Beyond this a number is too large or too small whatever its digits are.
        const POWER_MAX: i64 = 1 << 20;
        let (is_negative, magnitude) = match bytes {
            [b'-', magnitude @ ..] => (true, magnitude),
            [b'+', magnitude @ ..] => (false, magnitude),
            magnitude => (false, magnitude),
        };
        let end = magnitude.iter().position(|byte| matches!(byte, b'e' | b'E'));
        let (mantissa, exponent) = magnitude.split_at(end.unwrap_or(magnitude.len()));
        let exponent = match exponent {
            [] => 0,
            [_, b'-', exponent @ ..] => -power(exponent, POWER_MAX)?,
            [_, b'+', exponent @ ..] | [_, exponent @ ..] => power(exponent, POWER_MAX)?,
        };
        let point = mantissa.iter().position(|&byte| byte == b'.');
        let (whole, fraction) = mantissa.split_at(point.unwrap_or(mantissa.len()));
        let fraction = fraction.get(1..).unwrap_or_default();
        let mut digits = [whole, fraction].concat();
        if !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let mut power = exponent - fraction.len() as i64;
        while digits.pop_if(|digit| *digit == b'0').is_some() {
            power += 1;
        }
        let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
        digits.drain(..zeros);
        Some(Decimal { is_negative, digits, power })
    }

    /// How many digits stand before the point.
    fn whole_digits(&self) -> i64 {
        self.digits.len() as i64 + self.power
    }

    /// The integer that these of its digits make, followed by zeros.
    fn integer(&self, digits: &[u8], zeros: u32) -> i128 {
        let add = |value: i128, digit: &u8| value * 10 + i128::from(digit - b'0');
        let magnitude = digits.iter().fold(0, add) * 10i128.pow(zeros);
        if self.is_negative { -magnitude } else { magnitude }
    }
}

/// A decimal number of few digits as a multiple of 10^-17.
fn decimal(bytes: &[u8]) -> Option<i128> {
    const WHOLE_DIGITS_MAX: i64 = 20;
    let decimal = Decimal::of(bytes)?;
    if decimal.digits.is_empty() {
        return Some(0);
    }
    let zeros = u32::try_from(decimal.power + i64::from(FRACTION_DIGITS)).ok()?;
    let fits = decimal.whole_digits() <= WHOLE_DIGITS_MAX;
    fits.then(|| decimal.integer(&decimal.digits, zeros))
}

/// A decimal number without its fraction, rounded to a mantissa of 64 bits.
fn extended(bytes: &[u8]) -> Option<i128> {
    const WHOLE_DIGITS_MAX: i64 = 37;
    let decimal = Decimal::of(bytes)?;
    let digits = usize::try_from(decimal.whole_digits().max(0)).ok()?;
    if decimal.whole_digits() > WHOLE_DIGITS_MAX {
        return None;
    }
    let kept = &decimal.digits[..digits.min(decimal.digits.len())];
    let zeros = (digits - kept.len()) as u32;
    Some(rounded(decimal.integer(kept, zeros)))
}

/// An integer rounded to a mantissa of 64 bits, ties to even.
fn rounded(value: i128) -> i128 {
    let magnitude = value.unsigned_abs();
    let lost = (u128::BITS - magnitude.leading_zeros()).saturating_sub(64);
    if lost == 0 {
        return value;
    }
    let (kept, rest, half) = (magnitude >> lost, magnitude & ((1 << lost) - 1), 1 << (lost - 1));
    let is_up = rest > half || rest == half && kept % 2 == 1;
    let magnitude = ((kept + u128::from(is_up)) << lost).cast_signed();
    if value < 0 { -magnitude } else { magnitude }
}

fn decimal_text(value: i128) -> String {
    let sign = if value < 0 { "-" } else { "" };
    let (whole, fraction) = (value.unsigned_abs() / ONE as u128, value.unsigned_abs() % ONE as u128);
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
            ("0x10", "0.5", Ok("16.5")),
            // What Redis 7.4 makes of these.
            ("1e2", "1.5e1", Ok("115")),
            ("1e19", "1", Ok("10000000000000000001")),
            ("3e17", "1", Ok("300000000000000001")),
            ("9007199254740993e0", "1", Ok("9007199254740994")),
            ("1e-5", "1E-5", Ok("0.00002")),
            ("1e25", "1", Ok("10000000000000000000000000")),
            ("123456789012345678901234", "0", Ok("123456789012345678897152")),
            ("1e36", "-1e36", Ok("0")),
            ("1.1e30", "0.5", Ok("1099999999999999999979062034432")),
            ("0e5", "-0e-99999999999999999999", Ok("0")),
            ("12e", "1", Err(FloatSumError::NotAFloat)),
            ("-0x.8", "1e-400", Ok("-0.5")),
        ] {
            assert_eq!(float_sum(a.as_bytes(), b.as_bytes()), sum.map(str::to_owned), "{a} + {b}");
        }
    }

    /// What Redis 7.0 makes of these.
    #[test]
    fn floats_are_read_as_c_does() {
        for (text, value) in [
            ("0x10", Some(16.0)),
            ("0X1p4", Some(16.0)),
            ("-0x1.8", Some(-1.5)),
            ("+0x10", Some(16.0)),
            ("0x", None),
            ("0x.8", Some(0.5)),
            ("0x10.", Some(16.0)),
            ("0x.", None),
            ("0x1.2.3", None),
            ("0x1p", None),
            ("0x1p+4", Some(16.0)),
            ("0x1p+-4", None),
            ("0x.p1", None),
            ("0xinf", None),
            ("0x-1", None),
            ("0x 1", None),
            ("0x1p-1074", Some(5e-324)),
            ("0x1p-1075", None),
            ("0x1.8p-1075", Some(5e-324)),
            ("0x3p-1075", Some(1e-323)),
            ("0x1p-1060", Some(8.095e-320)),
            ("0x0.8p-1022", Some(1.112_536_929_253_600_7e-308)),
            ("0x1.fffffffffffffp-1023", Some(f64::MIN_POSITIVE)),
            ("0x1p-2000", None),
            ("0x1p1023", Some(2f64.powi(1023))),
            ("0x1p1024", None),
            ("0x1.fffffffffffff8p1023", None),
            ("0x1.fffffffffffff7fp1023", Some(f64::MAX)),
            ("0x1.00000000000008p0", Some(1.0)),
            ("0x1.000000000000080000000000000001p0", Some(1.0 + f64::EPSILON)),
            ("0x1.00000000000018p0", Some(1.0 + 2.0 * f64::EPSILON)),
            ("0x10000000000000000000000", Some(2f64.powi(88))),
            ("0x0.000000000000000000000001", Some(2f64.powi(-96))),
            ("0x0", Some(0.0)),
            ("0x0p99999999999999999999", Some(0.0)),
            ("0x1p99999999999999999999", None),
            ("0x1p-99999999999999999999", None),
            ("inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("nan", None),
            ("1E+5", Some(1e5)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("00012", Some(12.0)),
            ("1e400", None),
            ("1e-310", Some(1e-310)),
            ("1e-400", None),
            ("0e99999999999", Some(0.0)),
            ("-0", Some(0.0)),
            ("", None),
            (".", None),
            (" 1", None),
            ("1 ", None),
            ("1d", None),
        ] {
            assert_eq!(float(text.as_bytes()), value, "{text}");
        }
    }

    #[test]
    fn hexadecimal_floats_are_rounded_as_decimal_ones_are() {
        // The same numbers in both writings.
        let mut mantissa = 0x9e37_79b9_7f4a_7c15u64;
        for shift in 0..64 {
            mantissa = mantissa.rotate_left(7).wrapping_mul(5) >> (shift % 12);
            let text = format!("0x{mantissa:x}.p{}", shift % 5);
            let same = u128::from(mantissa) << (shift % 5);
            assert_eq!(float(text.as_bytes()), float(same.to_string().as_bytes()), "{text}");
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
            // What Redis 7.4 makes of these.
            (1e17, "100000000000000000"),
            (1e18, "1000000000000000000"),
            (4.611_686_018_427_388e18, "4611686018427387904"),
            (-4.611_686_018_427_388e18, "-4611686018427387904"),
            (5e18, "5e+18"),
            (-9e18, "-9e+18"),
            (9.223_372_036_854_776e18, "9223372036854776000"),
            (1.234_567_890_123_456_8e20, "123456789012345680000"),
            (1e21, "1e+21"),
            (1.5e19, "1.5e+19"),
            (1e-10, "1e-10"),
            (1e-7, "1e-7"),
            (1.234_567e-7, "1.234567e-7"),
            (1e-6, "0.000001"),
            (1e-5, "0.00001"),
            (1.234_567_8e-5, "1.2345678e-5"),
            (1.5e-5, "0.000015"),
            (0.000_123, "0.000123"),
            (3.333_333_333_333_333_5, "3.3333333333333335"),
            (1_234_567.123_456_7, "1.2345671234567e+6"),
            (123_456_789.123_456_78, "1.2345678912345678e+8"),
            (12_345.678, "12345.678"),
            (1e100, "1e+100"),
            (f64::MAX, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
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
