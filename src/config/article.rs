//! `as = { article = … }`: how articles are named, whether edits replace them, and how long they are kept.

use jiff::civil::Date;
use jiff::{Span, ToSpan};

use super::model::ShapeSpec;
use super::reader::{Field, Keys, repeated};

pub const ARTICLE_KEYS: Keys = &["on_edit", "keep", "key"];

/// The key of an article unless the config says otherwise.
pub const KEY: &str = "rss/{boardId}/{yyyy}_{mm}_{dd}_{articleId}.md";

const KEEP: &str = "a number of days, weeks or years such as \"90d\", \"26w\" or \"2y\"";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArticleSpec {
    pub on_edit: OnEdit,
    pub keep: Option<Retention>,
    pub key: KeyTemplate,
}

impl Default for ArticleSpec {
    fn default() -> Self {
        ArticleSpec { on_edit: OnEdit::Keep, keep: None, key: KeyTemplate::default() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnEdit {
    /// What was saved stays, whatever becomes of the article.
    Keep,
    /// A changed article replaces its file.
    Update,
}

/// How far back articles are kept, by the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    Days(i32),
    Years(i32),
}

/// A century: more is a slip of the finger.
const YEARS_MAX: i32 = 100;

impl Retention {
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit())?;
        let number: i32 = text[..digits].parse().ok().filter(|number| *number > 0)?;
        match text[digits..].trim_start() {
            "d" => Some(Retention::Days(number)).filter(|_| number <= YEARS_MAX * 366),
            "w" => Some(Retention::Days(number.checked_mul(7)?)).filter(|_| number <= YEARS_MAX * 53),
            "y" => Some(Retention::Years(number)).filter(|_| number <= YEARS_MAX),
            _ => None,
        }
    }

    /// The first day that is still kept.
    pub fn first_day(self, today: Date) -> Date {
        let back: Span = match self {
            Retention::Days(days) => days.days(),
            Retention::Years(years) => years.years(),
        };
        today.checked_sub(back).unwrap_or(Date::MIN)
    }
}

impl std::fmt::Display for Retention {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Retention::Days(days) => write!(f, "{days}d"),
            Retention::Years(years) => write!(f, "{years}y"),
        }
    }
}

/// How an article's key is made, and taken apart again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTemplate {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Board,
    Article,
    Year,
    Month,
    Day,
}

/// What a key says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub board: String,
    pub article: String,
    /// `None` when the template names no full date, or the key no real one.
    pub date: Option<Date>,
}

impl Default for KeyTemplate {
    fn default() -> Self {
        KeyTemplate::parse(KEY).unwrap_or(KeyTemplate { text: String::new(), parts: Vec::new() })
    }
}

impl KeyTemplate {
    /// An error says what is wrong in a few words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((name, after)) = after.split_once('}') else { return Err("a `{` is not closed".into()) };
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(match name {
                "boardId" | "board" => Part::Board,
                "articleId" | "article" => Part::Article,
                "yyyy" => Part::Year,
                "mm" => Part::Month,
                "dd" => Part::Day,
                _ => return Err(format!("there is no {{{}}}", repeated(name))),
            });
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        let template = KeyTemplate { text: text.to_owned(), parts };
        template.check().map(|()| template)
    }

    fn check(&self) -> Result<(), String> {
        for (part, name) in [(Part::Board, "boardId"), (Part::Article, "articleId")] {
            match self.parts.iter().filter(|other| **other == part).count() {
                1 => {}
                0 => return Err(format!("without {{{name}}} articles would share a key")),
                _ => return Err(format!("{{{name}}} is there twice")),
            }
        }
        let adjacent = |pair: &[Part]| pair.iter().all(|part| matches!(part, Part::Board | Part::Article));
        if self.parts.windows(2).any(adjacent) {
            return Err("{boardId} and {articleId} need something between them".into());
        }
        let bad = |segment: &str| matches!(segment, "" | "." | "..");
        if self.text.split('/').any(bad) || self.text.chars().any(char::is_control) {
            return Err("it is no path: no empty part, `.` or `..`".into());
        }
        Ok(())
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What every key starts with.
    pub fn head(&self) -> &str {
        match self.parts.first() {
            Some(Part::Text(text)) => text,
            _ => "",
        }
    }

    pub fn has_date(&self) -> bool {
        [Part::Year, Part::Month, Part::Day].iter().all(|part| self.parts.contains(part))
    }

    pub fn key(&self, board: &str, article: &str, date: Date) -> String {
        let mut key = String::with_capacity(self.text.len() + 24);
        for part in &self.parts {
            match part {
                Part::Text(text) => key.push_str(text),
                Part::Board => key.push_str(board),
                Part::Article => key.push_str(article),
                Part::Year => key.push_str(&format!("{:04}", date.year())),
                Part::Month => key.push_str(&format!("{:02}", date.month())),
                Part::Day => key.push_str(&format!("{:02}", date.day())),
            }
        }
        key
    }

    /// Take a key apart; `None` = it is not of this making.
    pub fn name(&self, key: &str) -> Option<Named> {
        let (mut found, mut first) = (Found::default(), None);
        matches(&self.parts, key, &mut found, &mut |found| {
            first = Some(found.clone());
            true
        });
        self.named(&first?)
    }

    /// All that a key may say. It is one thing where no id can hold what stands between board and article.
    pub fn names(&self, key: &str) -> Vec<Named> {
        let ends = |part: &Part| matches!(part, Part::Board | Part::Article);
        let between = self.parts.iter().skip_while(|part| !ends(part)).skip(1).take_while(|part| !ends(part));
        let apart =
            |part: &Part| matches!(part, Part::Text(text) if !text.bytes().all(|byte| fits_id(&byte)));
        if between.into_iter().any(apart) {
            return self.name(key).into_iter().collect();
        }
        let mut names = Vec::new();
        matches(&self.parts, key, &mut Found::default(), &mut |found| {
            names.extend(self.named(found));
            false
        });
        names
    }

    fn named(&self, found: &Found<'_>) -> Option<Named> {
        let number = |text: &str| text.parse::<i16>().ok();
        let day = |text: &str| text.parse::<i8>().ok();
        let date = || Date::new(number(found.year)?, day(found.month)?, day(found.day)?).ok();
        let date = if self.has_date() { Some(date()?) } else { None };
        Some(Named { board: found.board.to_owned(), article: found.article.to_owned(), date })
    }
}

#[derive(Clone, Default)]
struct Found<'k> {
    board: &'k str,
    article: &'k str,
    year: &'k str,
    month: &'k str,
    day: &'k str,
}

/// What ids are made of.
fn fits_id(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Every way to take a key apart goes to `each`, until that has had enough.
fn matches<'k>(
    parts: &[Part],
    key: &'k str,
    found: &mut Found<'k>,
    each: &mut dyn FnMut(&Found<'k>) -> bool,
) -> bool {
    let Some((part, rest)) = parts.split_first() else { return key.is_empty() && each(found) };
    let digits =
        |count: usize| key.get(..count).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let (slot, count) = match part {
        Part::Text(text) => {
            return key.strip_prefix(&**text).is_some_and(|key| matches(rest, key, found, each));
        }
        Part::Year => (&mut found.year, 4),
        Part::Month => (&mut found.month, 2),
        Part::Day => (&mut found.day, 2),
        Part::Board | Part::Article => {
            let longest = key.bytes().take_while(fits_id).count();
            return (1..=longest).any(|end| {
                let (name, tail) = key.split_at(end);
                if *part == Part::Board {
                    found.board = name;
                } else {
                    found.article = name;
                }
                matches(rest, tail, found, each)
            });
        }
    };
    let Some(text) = digits(count) else { return false };
    *slot = text;
    matches(rest, &key[count..], found, each)
}

pub fn read(settings: Option<&Field<'_>>) -> Option<ShapeSpec> {
    let Some(field) = settings else { return Some(ShapeSpec::Article(ArticleSpec::default())) };
    let reader = field.table(ARTICLE_KEYS, "a table such as { on_edit = \"keep\" }")?;
    let mut spec = ArticleSpec::default();
    if let Some(field) = reader.take("on_edit") {
        spec.on_edit = field.choice(&[("keep", OnEdit::Keep), ("update", OnEdit::Update)])?;
    }
    if let Some(field) = reader.take("key") {
        match KeyTemplate::parse(field.text("a template such as \"rss/{boardId}/{articleId}.md\"")?) {
            Ok(template) => spec.key = template,
            Err(why) => {
                let note = "it may hold {boardId}, {articleId}, {yyyy}, {mm} and {dd}";
                field.wrong_with(format!("`key` is no template: {why}"), note);
                return None;
            }
        }
    }
    if let Some(field) = reader.take("keep") {
        spec.keep = Some(field.as_text().and_then(Retention::parse).or_else(|| field.unexpected(KEEP))?);
        if !spec.key.has_date() {
            field.wrong("`keep` needs the day of an article in its `key`: {yyyy}, {mm} and {dd}");
            return None;
        }
    }
    Some(ShapeSpec::Article(spec))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    #[test]
    fn a_key_can_be_taken_apart_again() {
        let template = KeyTemplate::default();
        let key = template.key("25", "77561", date(2025, 10, 16));
        assert_eq!(key, "rss/25/2025_10_16_77561.md");
        let named = template.name(&key).unwrap();
        assert_eq!((&*named.board, &*named.article, named.date), ("25", "77561", Some(date(2025, 10, 16))));
        let foreign = [
            "rss/25/notes.md",
            "rss/25/2025_13_01_1.md",
            "rss/25/2025_10_16_.md",
            "x/rss/25/2025_10_16_1.md",
            "",
        ];
        for key in foreign {
            assert_eq!(template.name(key), None, "{key}");
        }
        let flat = KeyTemplate::parse("{articleId}-of-{boardId}").unwrap();
        assert_eq!(flat.name("a-of-b-of-c").unwrap().article, "a");
        assert_eq!(flat.name("a-of-b").unwrap().date, None);
    }

    #[test]
    fn all_that_a_key_may_say_is_told() {
        let names = |template: &str, key: &str| -> Vec<String> {
            let names = KeyTemplate::parse(template).unwrap().names(key);
            names.into_iter().map(|named| format!("{}/{}", named.board, named.article)).collect()
        };
        assert_eq!(names("{boardId}-{articleId}.md", "a-b-c.md"), ["a/b-c", "a-b/c"]);
        assert_eq!(names("{boardId}-{articleId}.md", "a-b.md"), ["a/b"]);
        assert_eq!(names("{boardId}/{articleId}.md", "a-b/c-d.md"), ["a-b/c-d"]);
        assert_eq!(names(KEY, "rss/a-b/2025_10_16_c_2025_10_16_d.md"), ["a-b/c_2025_10_16_d"]);
        assert!(names("{boardId}-{articleId}.md", "a.md").is_empty());
    }

    #[test]
    fn a_template_names_board_and_article() {
        for (text, wrong) in [
            ("{boardId}/x.md", "share a key"),
            ("{articleId}", "share a key"),
            ("{boardId}{articleId}", "between them"),
            ("{boardId}/{articleId}/{articleId}", "twice"),
            ("/{boardId}/{articleId}", "no path"),
            ("{boardId}/../{articleId}", "no path"),
            ("{boardId}/{articleId}/{hour}", "{hour}"),
            ("{boardId}/{articleId", "not closed"),
        ] {
            assert!(KeyTemplate::parse(text).unwrap_err().contains(wrong), "{text}");
        }
    }

    #[test]
    fn retention_goes_by_the_calendar() {
        let first = |text: &str, today| Retention::parse(text).unwrap().first_day(today).to_string();
        assert_eq!(first("2y", date(2024, 2, 29)), "2022-02-28");
        assert_eq!(first("2y", date(2026, 2, 28)), "2024-02-28");
        assert_eq!(first("4y", date(2028, 2, 29)), "2024-02-29");
        assert_eq!(first("90d", date(2025, 10, 17)), "2025-07-19");
        assert_eq!(first("1w", date(2025, 3, 1)), "2025-02-22");
        for bad in ["", "2", "0d", "-1d", "2m", "101y", "y"] {
            assert_eq!(Retention::parse(bad), None, "{bad}");
        }
    }
}
