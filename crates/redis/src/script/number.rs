//! Numbers as text, as C's `%.*g` writes them, whatever the locale.

use std::fmt::Write;

/// Appends `value` as `%.{precision}g` would.
pub fn push_g(out: &mut Vec<u8>, value: f64, precision: usize) {
    if value.is_nan() {
        out.extend_from_slice(if value.is_sign_negative() { b"-nan" } else { b"nan" });
        return;
    }
    if value.is_infinite() {
        out.extend_from_slice(if value < 0.0 { b"-inf" } else { b"inf" });
        return;
    }
    let precision = precision.max(1);
    if value.fract() == 0.0
        && value.abs() < 1e14
        && precision >= 14
        && !(value == 0.0 && value.is_sign_negative())
    {
        out.extend_from_slice(itoa::Buffer::new().format(value as i64).as_bytes());
        return;
    }
    let mut digits = String::with_capacity(precision + 8);
    let _ = write!(digits, "{:.*e}", precision - 1, value);
    let (mantissa, exponent) = digits.split_once('e').unwrap_or((&digits, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= precision as i32 {
        out.extend_from_slice(without_trailing_zeros(mantissa).as_bytes());
        let sign = if exponent < 0 { '-' } else { '+' };
        let mut tail = String::new();
        let _ = write!(tail, "e{sign}{:02}", exponent.abs());
        out.extend_from_slice(tail.as_bytes());
    } else {
        let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
        out.extend_from_slice(without_trailing_zeros(&format!("{value:.decimals$}")).as_bytes());
    }
}

/// `value` as `%.{precision}g` writes it.
pub fn format_g(value: f64, precision: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(24);
    push_g(&mut out, value, precision);
    out
}

fn without_trailing_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        for (value, precision, text) in [
            (1.5, 17, "1.5"),
            (0.1, 17, "0.10000000000000001"),
            (0.1, 14, "0.1"),
            (1e20, 17, "1e+20"),
            (1_234_567_890_123_456_789.0, 17, "1.2345678901234568e+18"),
            (100_000_000_000_000.0, 17, "100000000000000"),
            (100_000_000_000_000.0, 14, "1e+14"),
            (1e-5, 14, "1e-05"),
            (-0.0, 17, "-0"),
            (0.0001, 14, "0.0001"),
            (123_456.75, 3, "1.23e+05"),
            (f64::NEG_INFINITY, 14, "-inf"),
            (-42.0, 14, "-42"),
            (5e-324, 17, "4.9406564584124654e-324"),
            (999.9996, 6, "1000"),
        ] {
            assert_eq!(
                String::from_utf8(format_g(value, precision)).as_deref(),
                Ok(text),
                "{value} at {precision}"
            );
        }
    }
}
