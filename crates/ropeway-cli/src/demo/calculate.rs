//! Evaluates arithmetic expressions.

/// Maximum expression size in bytes.
pub(super) const MAX_EXPRESSION: usize = 10_000;
/// Maximum nesting depth for parentheses, functions and signs.
const MAX_DEPTH: usize = 100;

/// An invalid expression.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ExpressionError {
    at: usize,
    reason: String,
}

impl ExpressionError {
    /// Describes the error and points at its position.
    pub(super) fn explain(&self, expression: &str) -> String {
        let place = format!("at character {}: {}", self.at + 1, self.reason);
        // The pointer needs a line that does not wrap.
        if expression.chars().count() > 60 || expression.contains(char::is_control) {
            return place;
        }
        format!("{place}\n\n  {expression}\n  {}^", " ".repeat(self.at))
    }
}

/// Evaluates an expression.
pub(super) fn evaluate(expression: &str) -> Result<f64, ExpressionError> {
    if expression.len() > MAX_EXPRESSION {
        return Err(ExpressionError { at: 0, reason: format!("the expression is longer than {MAX_EXPRESSION} bytes") });
    }
    let characters: Vec<char> = expression.chars().collect();
    let mut parser = Parser { characters: &characters, at: 0, depth: 0 };
    let value = parser.sum()?;
    match parser.peek() {
        None => Ok(value),
        Some(c) => Err(parser.error_here(match c {
            ')' => "unmatched `)`".to_owned(),
            _ => format!("expected an operator, found `{c}`"),
        })),
    }
}

/// Formats a number without binary rounding noise.
pub(super) fn format(value: f64) -> String {
    let rounded: f64 = format!("{value:.14e}").parse().unwrap_or(value);
    let size = rounded.abs();
    if rounded == 0.0 {
        "0".to_owned()
    } else if (1e-7..1e21).contains(&size) {
        format!("{rounded}")
    } else {
        format!("{rounded:e}")
    }
}

struct Parser<'a> {
    characters: &'a [char],
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn error_here(&self, reason: impl Into<String>) -> ExpressionError {
        ExpressionError { at: self.at, reason: reason.into() }
    }

    /// Returns the next character that is not whitespace.
    fn peek(&mut self) -> Option<char> {
        while self.characters.get(self.at).is_some_and(|c| c.is_whitespace()) {
            self.at += 1;
        }
        self.characters.get(self.at).copied()
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    /// Returns the value if it is finite.
    fn checked(&self, at: usize, value: f64, undefined: &str) -> Result<f64, ExpressionError> {
        match value {
            value if value.is_nan() => Err(ExpressionError { at, reason: undefined.to_owned() }),
            value if value.is_infinite() => Err(ExpressionError { at, reason: "the result is too large".to_owned() }),
            value => Ok(value),
        }
    }

    fn sum(&mut self) -> Result<f64, ExpressionError> {
        let mut value = self.product()?;
        loop {
            let sign = match self.peek() {
                Some('+') => 1.0,
                Some('-' | '−') => -1.0,
                _ => return Ok(value),
            };
            let at = self.at;
            self.at += 1;
            value += sign * self.product()?;
            value = self.checked(at, value, "the result is not a number")?;
        }
    }

    fn product(&mut self) -> Result<f64, ExpressionError> {
        let mut value = self.signed()?;
        loop {
            let Some(operator @ ('*' | '×' | '·' | '/' | '÷' | '%')) = self.peek() else { return Ok(value) };
            let at = self.at;
            self.at += 1;
            let right = self.signed()?;
            value = match operator {
                '*' | '×' | '·' => value * right,
                _ if right == 0.0 => return Err(ExpressionError { at, reason: "division by zero".to_owned() }),
                '%' => value % right,
                _ => value / right,
            };
            value = self.checked(at, value, "the result is not a number")?;
        }
    }

    /// A sign binds less tightly than a power: `-2^2` is -4.
    fn signed(&mut self) -> Result<f64, ExpressionError> {
        let sign = match self.peek() {
            Some('+') => 1.0,
            Some('-' | '−') => -1.0,
            _ => return self.power(),
        };
        self.at += 1;
        self.nested(|parser| Ok(sign * parser.signed()?))
    }

    /// Powers associate to the right: `2^3^2` is `2^9`.
    fn power(&mut self) -> Result<f64, ExpressionError> {
        let base = self.atom()?;
        let at = self.at;
        if !self.take('^') {
            return Ok(base);
        }
        let exponent = self.nested(Self::signed)?;
        if base == 0.0 && exponent < 0.0 {
            return Err(ExpressionError { at, reason: "division by zero".to_owned() });
        }
        self.checked(at, base.powf(exponent), "fractional power of a negative number")
    }

    fn atom(&mut self) -> Result<f64, ExpressionError> {
        match self.peek() {
            Some('(') => {
                let opened = self.at;
                self.at += 1;
                let value = self.nested(Self::sum)?;
                self.close(opened)?;
                Ok(value)
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some('π') => {
                self.at += 1;
                Ok(std::f64::consts::PI)
            }
            Some(c) if c.is_alphabetic() => self.named(),
            Some(c) => Err(self.error_here(format!("expected a number, a function or `(`, found `{c}`"))),
            None => Err(self.error_here("expected a number, a function or `(`, found the end")),
        }
    }

    fn close(&mut self, opened: usize) -> Result<(), ExpressionError> {
        if self.take(')') {
            return Ok(());
        }
        Err(match self.peek() {
            Some(c) => self.error_here(format!("expected an operator or `)`, found `{c}`")),
            None => ExpressionError { at: opened, reason: "unclosed `(`".to_owned() },
        })
    }

    fn number(&mut self) -> Result<f64, ExpressionError> {
        let start = self.at;
        let digits = |parser: &mut Self| {
            while parser.characters.get(parser.at).is_some_and(char::is_ascii_digit) {
                parser.at += 1;
            }
        };
        digits(self);
        if self.characters.get(self.at) == Some(&'.') {
            self.at += 1;
            digits(self);
        }
        // `2e3` is a number; in `2e` or `2exp(1)` the `e` is not part of it.
        if let Some('e' | 'E') = self.characters.get(self.at) {
            let signed = matches!(self.characters.get(self.at + 1), Some('+' | '-'));
            let first = self.at + 1 + usize::from(signed);
            if self.characters.get(first).is_some_and(char::is_ascii_digit) {
                self.at = first;
                digits(self);
            }
        }
        let text: String = self.characters[start..self.at].iter().collect();
        match text.parse::<f64>() {
            Ok(value) => self.checked(start, value, "this is not a number"),
            Err(_) => Err(ExpressionError { at: start, reason: format!("`{text}` is not a number") }),
        }
    }

    fn named(&mut self) -> Result<f64, ExpressionError> {
        let start = self.at;
        while self.characters.get(self.at).is_some_and(|c| c.is_alphanumeric()) {
            self.at += 1;
        }
        let name: String = self.characters[start..self.at].iter().collect::<String>().to_lowercase();
        let constant = match name.as_str() {
            "pi" => Some(std::f64::consts::PI),
            "tau" => Some(std::f64::consts::TAU),
            "e" => Some(std::f64::consts::E),
            _ => None,
        };
        if let Some(constant) = constant {
            return Ok(constant);
        }
        if !FUNCTIONS.contains(&name.as_str()) {
            let question = ropeway_core::suggest::did_you_mean(&name, FUNCTIONS)
                .unwrap_or_else(|| format!("known functions: {}", FUNCTIONS.join(", ")));
            return Err(ExpressionError { at: start, reason: format!("unknown function `{name}`: {question}") });
        }
        let opened = self.at;
        if !self.take('(') {
            return Err(self.error_here(format!("expected `(` after `{name}`")));
        }
        let mut inputs = Vec::new();
        if self.peek() != Some(')') {
            inputs.push(self.nested(Self::sum)?);
            while self.take(',') {
                inputs.push(self.nested(Self::sum)?);
            }
        }
        self.close(opened)?;
        let value = apply(&name, &inputs).map_err(|reason| ExpressionError { at: start, reason })?;
        self.checked(start, value, &format!("`{name}` is undefined for this value"))
    }

    /// Parses one level deeper. The limit protects the stack.
    fn nested(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<f64, ExpressionError>,
    ) -> Result<f64, ExpressionError> {
        if self.depth == MAX_DEPTH {
            return Err(self.error_here(format!("nested more than {MAX_DEPTH} levels deep")));
        }
        self.depth += 1;
        let value = parse(self);
        self.depth -= 1;
        value
    }
}

const FUNCTIONS: [&str; 22] = [
    "abs", "acos", "asin", "atan", "cbrt", "ceil", "cos", "exp", "floor", "hypot", "ln", "log", "log2", "max", "min",
    "round", "sign", "sin", "sqrt", "tan", "tanh", "trunc",
];

fn apply(name: &str, inputs: &[f64]) -> Result<f64, String> {
    let count = |wanted: &str| format!("`{name}` takes {wanted}, not {}", inputs.len());
    match (name, inputs) {
        ("min" | "max", []) => return Err(count("at least one value")),
        ("min", inputs) => return Ok(inputs.iter().copied().fold(f64::INFINITY, f64::min)),
        ("max", inputs) => return Ok(inputs.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
        ("hypot", [a, b]) => return Ok(a.hypot(*b)),
        ("hypot", _) => return Err(count("two values")),
        _ => {}
    }
    let [x] = inputs else { return Err(count("one value")) };
    if matches!(name, "ln" | "log" | "log2") && *x <= 0.0 {
        return Err(format!("`{name}` needs a positive number"));
    }
    Ok(match name {
        "abs" => x.abs(),
        "acos" => x.acos(),
        "asin" => x.asin(),
        "atan" => x.atan(),
        "cbrt" => x.cbrt(),
        "ceil" => x.ceil(),
        "cos" => x.cos(),
        "exp" => x.exp(),
        "floor" => x.floor(),
        "ln" => x.ln(),
        "log" => x.log10(),
        "log2" => x.log2(),
        "round" => x.round(),
        "sign" if *x == 0.0 => 0.0,
        "sign" => x.signum(),
        "sin" => x.sin(),
        "sqrt" if *x < 0.0 => return Err("square root of a negative number".to_owned()),
        "sqrt" => x.sqrt(),
        "tan" => x.tan(),
        "tanh" => x.tanh(),
        "trunc" => x.trunc(),
        _ => return Err(format!("unknown function `{name}`")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(expression: &str) -> String {
        match evaluate(expression) {
            Ok(value) => format(value),
            Err(error_here) => format!("{}: {}", error_here.at + 1, error_here.reason),
        }
    }

    #[test]
    fn expressions_follow_the_usual_precedence() {
        for (expression, expected) in [
            ("2+3*4", "14"),
            ("(2+3)*4", "20"),
            ("10-4-3", "3"),
            ("100/10/2", "5"),
            ("7 % 4 * 2", "6"),
            ("-7 % 4", "-3"),
            ("2^3^2", "512"),
            ("-2^2", "-4"),
            ("(-2)^2", "4"),
            ("2^-1", "0.5"),
            ("--3", "3"),
            ("2*-3", "-6"),
            ("0.1+0.2", "0.3"),
            ("1/3", "0.333333333333333"),
            (".5 + 1.", "1.5"),
            ("1e3 + 2E-3", "1000.002"),
            ("2*e", "5.43656365691809"),
            ("sqrt(16) + abs(-3)", "7"),
            ("max(1, 5, 3) - min(4)", "1"),
            ("round(sin(pi/2)) + log(1000) + ln(e) + log2(8)", "8"),
            ("hypot(3,4)", "5"),
            ("SQRT( 4 )", "2"),
            ("6 × 7 − 2 ÷ 1", "40"),
            ("2^100", "1.26765060022823e30"),
            ("1e-9", "1e-9"),
            ("3-3", "0"),
            ("-0", "0"),
            ("123456789*1000", "123456789000"),
        ] {
            assert_eq!(answer(expression), expected, "{expression}");
        }
    }

    #[test]
    fn an_error_is_reported_with_its_position() {
        for (expression, expected) in [
            ("", "1: expected a number, a function or `(`, found the end"),
            ("2 + * 3", "5: expected a number, a function or `(`, found `*`"),
            ("2 3", "3: expected an operator, found `3`"),
            ("(1+2", "1: unclosed `(`"),
            ("1)", "2: unmatched `)`"),
            ("(1 2)", "4: expected an operator or `)`, found `2`"),
            ("4/(2-2)", "2: division by zero"),
            ("4%0", "2: division by zero"),
            ("0^-1", "2: division by zero"),
            ("sqrt(-1)", "1: square root of a negative number"),
            ("(-8)^0.5", "5: fractional power of a negative number"),
            ("1 + sqr(2)", "5: unknown function `sqr`: did you mean `sqrt`?"),
            ("sqrt 2", "6: expected `(` after `sqrt`"),
            ("sqrt(1,2)", "1: `sqrt` takes one value, not 2"),
            ("ln(0)", "1: `ln` needs a positive number"),
            ("asin(2)", "1: `asin` is undefined for this value"),
            ("10^400", "3: the result is too large"),
            ("1e999", "1: the result is too large"),
            (".", "1: `.` is not a number"),
            ("min()", "1: `min` takes at least one value, not 0"),
        ] {
            assert_eq!(answer(expression), expected, "{expression}");
        }
    }

    #[test]
    fn a_pointer_shows_the_position() {
        let error_here = evaluate("2 + * 3").expect_err("a mistake");
        let expected = "at character 5: expected a number, a function or `(`, found `*`\n\n  2 + * 3\n      ^";
        assert_eq!(error_here.explain("2 + * 3"), expected);
    }

    #[test]
    fn deep_nesting_is_refused() {
        for row in ["(", "-", "sqrt(", "2^"] {
            assert!(evaluate(&row.repeat(2000)).is_err());
        }
        assert!(evaluate(&"1+".repeat(6000)).is_err());
        assert_eq!(answer(&format!("{}1{}", "(".repeat(90), ")".repeat(90))), "1");
    }
}
