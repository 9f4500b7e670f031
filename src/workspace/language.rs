//! The nine languages documents are read in, and which of them a text is written in.

use std::fmt;

use serde::{Deserialize, Serialize};
use whatlang::{Detector, Lang};

use crate::error::{Error, Kind, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    De,
    En,
    Es,
    Fr,
    It,
    Pt,
    Ro,
    Fi,
    Sv,
}

/// Enough of a text to tell its language; more only takes longer.
const SAMPLE_CHARS: usize = 20_000;

impl Language {
    pub const ALL: [Language; 9] = [
        Language::De,
        Language::En,
        Language::Es,
        Language::Fr,
        Language::It,
        Language::Pt,
        Language::Ro,
        Language::Fi,
        Language::Sv,
    ];

    pub fn code(self) -> &'static str {
        match self {
            Language::De => "de",
            Language::En => "en",
            Language::Es => "es",
            Language::Fr => "fr",
            Language::It => "it",
            Language::Pt => "pt",
            Language::Ro => "ro",
            Language::Fi => "fi",
            Language::Sv => "sv",
        }
    }

    /// Its English name, for whoever is asked to translate.
    pub fn name(self) -> &'static str {
        match self {
            Language::De => "German",
            Language::En => "English",
            Language::Es => "Spanish",
            Language::Fr => "French",
            Language::It => "Italian",
            Language::Pt => "Portuguese",
            Language::Ro => "Romanian",
            Language::Fi => "Finnish",
            Language::Sv => "Swedish",
        }
    }

    pub fn parse(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|language| language.code() == code)
    }

    /// As [`Language::parse`], with an error that says what there is.
    pub fn named(code: &str) -> Result<Self> {
        Self::parse(code).ok_or_else(|| {
            let message = format!("`{}` is no language of a workspace", code.escape_debug());
            Error::new(Kind::Invalid, message).remedy_is(format!("Languages are: {}.", codes()))
        })
    }

    /// The language a text is written in, as far as it is one of the nine.
    pub fn of(text: &str) -> Result<Self> {
        let sample: String = text.chars().take(SAMPLE_CHARS).collect();
        let detector = Detector::with_allowlist(Self::ALL.map(Self::lang).to_vec());
        let lang = detector.detect_lang(&sample);
        let found = lang.and_then(|lang| Self::ALL.into_iter().find(|language| language.lang() == lang));
        let Some(found) = found else {
            return Err(Error::new(Kind::Invalid, "the language of its text cannot be told")
                .remedy_is(format!("Documents can be in: {}.", codes())));
        };
        Ok(Self::by_function_words(&sample, found))
    }

    /// Trigrams mistake close relatives in a short text; small words do not. They overrule only when they are clear.
    fn by_function_words(sample: &str, found: Self) -> Self {
        let mut votes = [0_u32; 9];
        for word in sample.to_lowercase().split(|c: char| !c.is_alphabetic()) {
            for (at, language) in Self::ALL.iter().enumerate() {
                votes[at] += u32::from(language.function_words().contains(&word));
            }
        }
        let of = |language: Self| Self::ALL.iter().position(|one| *one == language).map_or(0, |at| votes[at]);
        let best = Self::ALL.into_iter().max_by_key(|language| of(*language)).unwrap_or(found);
        if 2 * of(best) > 3 * of(found) + 2 { best } else { found }
    }

    fn function_words(self) -> &'static [&'static str] {
        match self {
            Language::De => {
                &["der", "die", "das", "und", "ist", "nicht", "mit", "von", "zu", "den", "ein", "für"]
            }
            Language::En => {
                &["the", "of", "and", "to", "in", "is", "that", "for", "with", "shall", "by", "at"]
            }
            Language::Es => &["el", "los", "las", "del", "y", "en", "que", "una", "por", "con", "al", "es"],
            Language::Fr => {
                &["le", "les", "des", "et", "est", "dans", "que", "une", "pour", "par", "du", "au"]
            }
            Language::It => {
                &["il", "di", "che", "per", "una", "con", "del", "della", "è", "da", "gli", "nel"]
            }
            Language::Pt => &["o", "os", "do", "da", "em", "que", "uma", "por", "com", "não", "pelo", "pela"],
            Language::Ro => &["și", "de", "în", "cu", "pe", "care", "un", "din", "este", "să", "ale", "cel"],
            Language::Fi => {
                &["ja", "on", "ei", "että", "tai", "joka", "jotka", "sekä", "kuin", "ovat", "sen", "voi"]
            }
            Language::Sv => {
                &["och", "att", "det", "som", "en", "på", "är", "av", "för", "med", "till", "vid"]
            }
        }
    }

    fn lang(self) -> Lang {
        match self {
            Language::De => Lang::Deu,
            Language::En => Lang::Eng,
            Language::Es => Lang::Spa,
            Language::Fr => Lang::Fra,
            Language::It => Lang::Ita,
            Language::Pt => Lang::Por,
            Language::Ro => Lang::Ron,
            Language::Fi => Lang::Fin,
            Language::Sv => Lang::Swe,
        }
    }
}

fn codes() -> String {
    Language::ALL.map(Language::code).join(", ")
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_the_nine_is_told_from_a_sentence() {
        let cases = [
            (
                "Jede Doktorandin und jeder Doktorand wird von zwei Personen betreut, die der Fakultät angehören.",
                "de",
            ),
            (
                "Every doctoral candidate shall have at least two supervisors employed by the university.",
                "en",
            ),
            (
                "Cada estudiante de doctorado tendrá al menos dos directores contratados por la universidad.",
                "es",
            ),
            ("Chaque doctorant est encadré par au moins deux directeurs employés par l'université.", "fr"),
            (
                "Ogni dottorando è seguito da almeno due supervisori assunti dall'università degli studi.",
                "it",
            ),
            (
                "Cada estudante de doutoramento terá pelo menos dois orientadores contratados pela universidade.",
                "pt",
            ),
            ("Fiecare doctorand are cel puțin doi conducători de doctorat angajați ai universității.", "ro"),
            (
                "Jokaisella väitöskirjatutkijalla on vähintään kaksi ohjaajaa, jotka työskentelevät yliopistossa.",
                "fi",
            ),
            ("Varje doktorand ska ha minst två handledare som är anställda vid universitetet.", "sv"),
        ];
        for (text, code) in cases {
            assert_eq!(Language::of(text).unwrap().code(), code, "{text}");
        }
    }

    #[test]
    fn what_is_in_none_of_them_is_said_so() {
        for text in ["", "12345 ---", "Каждый аспирант имеет двух руководителей."]
        {
            assert_eq!(Language::of(text).unwrap_err().kind(), Kind::Invalid, "{text}");
        }
        assert!(Language::named("xx").unwrap_err().remedy().contains("sv"));
    }
}
