//! Draws numbers as a chart.

use super::calculate;
use super::canvas::{Canvas, Colour, Point};
use super::font;

/// Maximum values that fit into the image.
pub(super) const MAX_VALUES: usize = 500;
/// Maximum absolute value that an axis can show.
const MAX_VALUE: f64 = 1e100;

const WIDTH: usize = 640;
const HEIGHT: usize = 360;

const BACKGROUND: Colour = [255, 255, 255];
const GRID: Colour = [230, 234, 240];
const AXIS: Colour = [148, 160, 176];
const LABEL: Colour = [86, 98, 116];
const TITLE: Colour = [24, 34, 52];
const ABOVE: Colour = [52, 120, 226];
const BELOW: Colour = [228, 98, 84];

const LABEL_SIZE: f64 = 8.5;
const TITLE_SIZE: f64 = 14.0;

/// The chart type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bar,
    Line,
}

/// At least one number to draw.
pub(super) struct Chart {
    pub(super) values: Vec<f64>,
    pub(super) title: String,
    pub(super) kind: Kind,
}

impl Chart {
    /// Describes the image.
    pub(super) fn describe(&self) -> String {
        let (low, high) = self.range();
        let kind = if self.kind == Kind::Bar { "bar" } else { "line" };
        let about = if self.title.is_empty() { String::new() } else { format!(" \"{}\"", self.title) };
        let values = match self.values.len() {
            1 => format!("1 value, {}", calculate::format(low)),
            count => format!("{count} values from {} to {}", calculate::format(low), calculate::format(high)),
        };
        format!("A {kind} chart{about} of {values}, {WIDTH}x{HEIGHT} pixels.")
    }

    /// Returns the image as a PNG file.
    pub(super) fn png(&self) -> Result<Vec<u8>, String> {
        if self.values.iter().any(|value| value.abs() > MAX_VALUE) {
            return Err(format!(
                "argument `values` contains a number beyond {MAX_VALUE:e}, which is too large to draw"
            ));
        }
        let mut canvas = Canvas::new(WIDTH, HEIGHT, BACKGROUND);
        self.draw(&mut canvas);
        Ok(canvas.png())
    }

    fn range(&self) -> (f64, f64) {
        let low = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (low, high)
    }

    fn draw(&self, canvas: &mut Canvas) {
        let (low, high) = self.range();
        let scale = match self.kind {
            Kind::Bar => Scale::new(low.min(0.0), high.max(0.0)),
            Kind::Line => Scale::new(low, high),
        };
        let labels: Vec<String> = scale.ticks().map(|tick| scale.label(tick, 0)).collect();
        let widest = labels.iter().map(|label| font::width(label, LABEL_SIZE)).fold(0.0, f64::max);
        let plot = Plot {
            left: (16.0 + widest + 10.0).round(),
            right: WIDTH as f64 - 20.0,
            top: if self.title.is_empty() { 24.0 } else { 58.0 },
            bottom: HEIGHT as f64 - 34.0,
            scale,
        };
        self.draw_title(canvas);
        for (tick, label) in plot.scale.ticks().zip(&labels) {
            let y = plot.y(tick).round();
            canvas.fill((plot.left, y), (plot.right, y + 1.0), 0.0, GRID);
            let left = plot.left - 10.0 - font::width(label, LABEL_SIZE);
            canvas.text((left, y + 0.5 - LABEL_SIZE / 2.0), LABEL_SIZE, 1.3, LABEL, label);
        }
        match self.kind {
            Kind::Bar => self.draw_bars(canvas, &plot),
            Kind::Line => self.draw_line(canvas, &plot),
        }
        let level = plot.y(plot.scale.base()).round();
        canvas.fill((plot.left, level), (plot.right, level + 1.0), 0.0, AXIS);
        self.draw_positions(canvas, &plot);
    }

    fn draw_title(&self, canvas: &mut Canvas) {
        let room = WIDTH as f64 - 40.0;
        let mut title: String = self.title.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if font::width(&title, TITLE_SIZE) > room {
            while font::width(&title, TITLE_SIZE) > room - 20.0 && title.pop().is_some() {}
            title = format!("{}…", title.trim_end());
        }
        canvas.text((20.0, 21.0), TITLE_SIZE, 2.0, TITLE, &title);
    }

    /// Returns a value's horizontal centre.
    fn x(&self, plot: &Plot, at: usize) -> f64 {
        let room = plot.right - plot.left;
        let count = self.values.len() as f64;
        match self.kind {
            Kind::Line if self.values.len() > 1 => plot.left + 12.0 + (room - 24.0) * at as f64 / (count - 1.0),
            _ => plot.left + room * (at as f64 + 0.5) / count,
        }
    }

    fn draw_bars(&self, canvas: &mut Canvas, plot: &Plot) {
        let room = (plot.right - plot.left) / self.values.len() as f64;
        let half = (room * 0.36).min(34.0).max(room.min(1.0) / 2.0);
        let level = plot.y(0.0);
        for (at, value) in self.values.iter().enumerate() {
            let (x, y) = (self.x(plot, at), plot.y(*value));
            let (left, right) =
                if room > 6.0 { ((x - half).round(), (x + half).round()) } else { (x - half, x + half) };
            let radius = (half / 3.0).min(4.0);
            // Only the end away from the axis is rounded.
            if *value >= 0.0 {
                let far = y.min(level);
                canvas.fill((left, far), (right, level), radius.min(level - far), ABOVE);
                canvas.fill((left, (level - radius).max(far + radius)), (right, level.max(far + radius)), 0.0, ABOVE);
            } else {
                canvas.fill((left, level), (right, y), radius.min(y - level), BELOW);
                canvas.fill((left, level), (right, (level + radius).min(y - radius).max(level)), 0.0, BELOW);
            }
            self.draw_value(canvas, plot, at, room);
        }
    }

    fn draw_line(&self, canvas: &mut Canvas, plot: &Plot) {
        let points: Vec<Point> =
            self.values.iter().enumerate().map(|(at, value)| (self.x(plot, at), plot.y(*value))).collect();
        canvas.tint(&points, plot.y(plot.scale.base()), ABOVE, 0.12);
        canvas.stroke(&points, 2.4, ABOVE);
        let room = (plot.right - plot.left) / self.values.len() as f64;
        if room >= 10.0 {
            for point in &points {
                canvas.dot(*point, 4.4, BACKGROUND);
                canvas.dot(*point, 3.4, ABOVE);
            }
            (0..self.values.len()).for_each(|at| self.draw_value(canvas, plot, at, room));
        }
    }

    /// Labels a bar or a point with its value, if it fits.
    fn draw_value(&self, canvas: &mut Canvas, plot: &Plot, at: usize, room: f64) {
        let value = self.values[at];
        let label = plot.scale.label(value, 2);
        let width = font::width(&label, LABEL_SIZE);
        if self.values.len() > 16 || width + 4.0 > room {
            return;
        }
        let neighbour = |at: Option<usize>| at.and_then(|at| self.values.get(at)).copied();
        let valley = self.kind == Kind::Line
            && [at.checked_sub(1), at.checked_add(1)].into_iter().filter_map(neighbour).all(|other| other > value);
        let below = if self.kind == Kind::Bar { value < 0.0 } else { valley };
        let y = plot.y(value);
        let top = if below { y + 8.0 } else { y - 8.0 - LABEL_SIZE };
        canvas.text((self.x(plot, at) - width / 2.0, top), LABEL_SIZE, 1.3, LABEL, &label);
    }

    /// Numbers the values from left to right, as far as the labels fit.
    fn draw_positions(&self, canvas: &mut Canvas, plot: &Plot) {
        let count = self.values.len();
        let room = (plot.right - plot.left) / count as f64;
        let widest = font::width(&count.to_string(), LABEL_SIZE) + 10.0;
        let steps = [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500];
        let step = steps.into_iter().find(|step| *step as f64 * room >= widest).unwrap_or(500);
        // `1, 5, 10, …` reads better than `1, 6, 11, …`.
        let shown = |position: usize| step == 1 || position.is_multiple_of(step) || (position == 1 && step > 2);
        for position in (1..=count).filter(|position| shown(*position)) {
            let label = position.to_string();
            let left = self.x(plot, position - 1) - font::width(&label, LABEL_SIZE) / 2.0;
            canvas.text((left, plot.bottom + 12.0), LABEL_SIZE, 1.3, LABEL, &label);
        }
    }
}

/// The values' area.
struct Plot {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    scale: Scale,
}

impl Plot {
    fn y(&self, value: f64) -> f64 {
        self.bottom - (value - self.scale.low) / (self.scale.high - self.scale.low) * (self.bottom - self.top)
    }
}

/// An axis with round numbers.
#[derive(Debug, PartialEq)]
struct Scale {
    low: f64,
    high: f64,
    step: f64,
}

impl Scale {
    fn new(low: f64, high: f64) -> Self {
        let largest = low.abs().max(high.abs());
        // Equal values still need an axis with a range.
        let (low, high) = if largest < 1e-100 {
            (0.0, 1.0)
        } else if high - low <= largest * 1e-9 {
            (low - largest / 2.0, high + largest / 2.0)
        } else {
            (low, high)
        };
        let rough = (high - low) / 5.0;
        let size = 10_f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * size).into_iter().find(|step| *step >= rough * 0.999);
        let step = step.unwrap_or(10.0 * size);
        let (mut bottom, mut top) = ((low / step).floor() * step, (high / step).ceil() * step);
        // Leaves room for a value's label at the edge.
        if high > 0.0 && top - high < step * 0.3 {
            top += step / 2.0;
        }
        if low < 0.0 && low - bottom < step * 0.3 {
            bottom -= step / 2.0;
        }
        Self { low: bottom, high: top, step }
    }

    fn ticks(&self) -> impl Iterator<Item = f64> + use<> {
        let (low, high, step) = (self.low, self.high, self.step);
        let first = (low / step - 1e-6).ceil();
        (0..20).map(move |at| (first + f64::from(at)) * step).take_while(move |tick| *tick <= high + step * 1e-6)
    }

    /// Returns the values' base line.
    fn base(&self) -> f64 {
        0.0_f64.max(self.low).min(self.high)
    }

    /// Formats a number for the axis, with `more` extra digits.
    fn label(&self, value: f64, more: i32) -> String {
        let largest = self.low.abs().max(self.high.abs());
        let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")];
        let (unit, letter) = match units.into_iter().find(|(unit, _)| largest >= *unit) {
            Some((1e4, letter)) => (1e3, letter),
            Some(unit) => unit,
            None => (1.0, ""),
        };
        if largest >= 1e15 || self.step < 1e-5 {
            let digits = (1 + more) as usize;
            return if value == 0.0 { "0".to_owned() } else { format!("{value:.digits$e}") };
        }
        let step = self.step / unit;
        let whole = -(step.log10() + 1e-9).floor() as i32;
        // A step of 2.5 needs one more digit than its magnitude.
        let finer = i32::from((step * 10_f64.powi(whole)).fract() > 1e-6);
        let digits = ((whole + finer).max(0) + more) as usize;
        let text = format!("{:.digits$}", value / unit);
        let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        let text = if text == "-0" { "0" } else { text };
        if text == "0" { "0".to_owned() } else { format!("{text}{letter}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(values: &[f64], kind: Kind) -> Chart {
        Chart { values: values.to_vec(), title: "Größe — 100% (a\nb)".repeat(20), kind }
    }

    fn size(file: &[u8]) -> (u32, u32) {
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().expect("a PNG file");
        let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
        let frame = reader.next_frame(&mut pixels).expect("a picture");
        (frame.width, frame.height)
    }

    #[test]
    fn every_list_of_numbers_can_be_drawn() {
        let waves: Vec<f64> = (0..MAX_VALUES).map(|at| (at as f64 / 30.0).sin()).collect();
        for kind in [Kind::Bar, Kind::Line] {
            for values in [
                &[0.0][..],
                &[5.0],
                &[-5.0, -5.0],
                &[1e100, -1e100],
                &[1e-300, 2e-300],
                &[5e-324, 0.0],
                &[1e15, 1e15 + 0.125],
                &[0.001, 0.002, 1000.0],
                &[3.0, 1.0, 4.0, 1.0, 5.0],
                &waves,
            ] {
                let file = chart(values, kind).png().expect("a picture");
                assert_eq!(size(&file), (640, 360), "{values:?}");
            }
        }
        assert!(chart(&[1e200], Kind::Bar).png().is_err());
    }

    #[test]
    fn an_axis_has_round_numbers() {
        let labels = |low, high| {
            let scale = Scale::new(low, high);
            scale.ticks().map(|tick| scale.label(tick, 0)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(labels(0.0, 9.0), "0 2 4 6 8 10");
        assert_eq!(labels(-3.0, 7.0), "-4 -2 0 2 4 6 8");
        assert_eq!(labels(0.0, 1.1), "0 0.25 0.5 0.75 1 1.25");
        assert_eq!(labels(0.0, 44_000.0), "0 10k 20k 30k 40k 50k");
        assert_eq!(labels(0.0, 3_200_000.0), "0 1M 2M 3M 4M");
        assert_eq!(labels(0.0, 0.0), "0 0.2 0.4 0.6 0.8 1");
    }

    #[test]
    fn a_chart_is_described_in_words() {
        let chart = Chart { values: vec![3.0, 1.5], title: "Digits".to_owned(), kind: Kind::Line };
        assert_eq!(chart.describe(), "A line chart \"Digits\" of 2 values from 1.5 to 3, 640x360 pixels.");
    }
}
