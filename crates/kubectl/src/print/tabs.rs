//! Columns of text, as Go's tabwriter aligns them: a column is as wide as its cells in lines that follow each other.

use std::borrow::Cow;

/// Aligns lines whose cells end with tabs. What stands behind the last tab of a line is not padded. Nothing in them can steer
/// a terminal: messages of containers and Events are other people's.
pub fn align(text: &str, least: usize, padding: usize) -> String {
    let text = harmless(text);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    let mut out = String::with_capacity(text.len() * 2);
    let mut widths = Vec::new();
    Aligner { lines: &lines, least, padding, out: &mut out }.block(&mut widths, 0, lines.len());
    out
}

fn harmless(text: &str) -> Cow<'_, str> {
    match text.contains(['\u{1b}', '\r']) {
        true => text.replace('\u{1b}', "^[").replace('\r', "\\r").into(),
        false => text.into(),
    }
}

struct Aligner<'a> {
    lines: &'a [Vec<&'a str>],
    least: usize,
    padding: usize,
    out: &'a mut String,
}

impl Aligner<'_> {
    fn block(&mut self, widths: &mut Vec<usize>, mut from: usize, to: usize) {
        let column = widths.len();
        let mut at = from;
        while at < to {
            if column + 1 >= self.lines[at].len() {
                at += 1;
                continue;
            }
            self.write(widths, from, at);
            from = at;
            let mut width = self.least;
            while at < to && column + 1 < self.lines[at].len() {
                width = width.max(self.lines[at][column].chars().count() + self.padding);
                at += 1;
            }
            widths.push(width);
            self.block(widths, from, at);
            widths.pop();
            from = at;
        }
        self.write(widths, from, to);
    }

    fn write(&mut self, widths: &[usize], from: usize, to: usize) {
        for line in &self.lines[from..to] {
            for (index, cell) in line.iter().enumerate() {
                self.out.push_str(cell);
                if let Some(width) = widths.get(index) {
                    let length = cell.chars().count();
                    self.out.extend(std::iter::repeat_n(' ', width.saturating_sub(length)));
                }
            }
            self.out.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_others_wrote_steers_no_terminal() {
        let text = "Message:\t\u{1b}]0;title\u{7}gone\rhere\r\nNext:\tx\n";
        assert_eq!(super::align(text, 0, 2), "Message:  ^[]0;title\u{7}gone\\rhere\\r\nNext:     x\n");
    }

    #[test]
    fn columns_are_as_wide_as_their_neighbours() {
        let text = "NAME\tREADY\nweb\t1/1\n";
        assert_eq!(super::align(text, 6, 3), "NAME   READY\nweb    1/1\n");
        let text = "Name:\tx\nLabels:\ta=b\n\tc=d\nalone\nLonger name:\ty\n";
        assert_eq!(super::align(text, 0, 2), "Name:    x\nLabels:  a=b\n         c=d\nalone\nLonger name:  y\n");
    }
}
