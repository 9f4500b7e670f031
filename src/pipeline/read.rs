//! Reading: the source's listing merged with the baseline (and, where it is cheap, with the store's own listing)
//! into findings. Streams when everything is sorted, so a run with nothing to do needs no memory to speak of.

use std::borrow::Cow;
use std::collections::HashSet;

use super::clash::Clashes;
use super::detect::{self, Finding, Known};
use super::first::Onward;
use super::footing::{self, Ground};
use super::joined::Joined;
use super::known::is_called;
use super::lines::Lines;
use super::moved;
use super::past::Past;
use super::peek::{Peek, kept, peek};
use super::plan::{Action, PlanId, Seen, Step, Why};
pub use super::reading::Reading;
use super::reading::left_so;
use super::sightings::{Row, Sighting, Sightings, What};
use super::since;
use super::stock::Strangers;
use super::strays::{self, Strays};
use super::{Ask, Pipeline};
use crate::error::{Error, Fault, Kind, Result};
use crate::record::{Entry, Fingerprint};
use crate::source::{self, Cursors, Events};
use crate::state::footing::Footing;
use crate::state::held::Verdict;
use crate::state::journal::Change;
use crate::state::{Report, keys};
use crate::store::{Listed, What as Ls};

pub async fn read(
    line: &Pipeline,
    ask: &Ask,
    cursors: &Cursors,
    past: &Past,
    footing: Option<&Footing>,
    report: &mut Report,
) -> Result<Reading> {
    // What was undone and not said yet is found by reading everything: it may have left no trace elsewhere.
    let mut cursors =
        if past.undid_something_new() { Cow::Owned(Cursors::new()) } else { Cow::Borrowed(cursors) };
    let before = report.clone();
    let mut ground = Ground::of(line, ask, past, footing);
    if ground.is_some()
        && let Some(since) = line.source.since(&cursors).await?
    {
        if let Some(found) = since::read(line, ask, past, (since, &cursors), ground.take(), report).await? {
            return Ok(found);
        }
        *report = before.clone();
    }
    let found = read_once(line, ask, &cursors, past, ground, report).await?;
    if found.stale.is_empty() {
        return moved::looked_for(line, ask, found).await;
    }
    cursors.to_mut().retain(|scope, _| !found.stale.contains(scope));
    *report = before;
    moved::looked_for(line, ask, read_once(line, ask, &cursors, past, None, report).await?).await
}

async fn read_once(
    line: &Pipeline,
    ask: &Ask,
    cursors: &Cursors,
    past: &Past,
    ground: Option<Ground>,
    report: &mut Report,
) -> Result<Reading> {
    let merging = async |events| {
        let sightings = Sightings::of(events, line.shape.clone(), line.source.sorted());
        let mut merge = Merge::start(line, ask, past, report).await?;
        merge.ground = ground;
        merge.all(sightings).await?;
        Ok(merge.found)
    };
    beside_listing(line, ask, cursors, merging).await
}

/// Where nothing is known and nothing is there: what is new is handed on as it comes, in whatever order that is.
pub async fn read_onward(line: &Pipeline, ask: &Ask, onward: Onward, report: &mut Report) -> Result<Reading> {
    let past = Past::default();
    let merging = async |events| {
        let sightings = Sightings::Live(events, line.shape.clone());
        let mut merge = Merge::of(line, ask, &past, Joined::with_nothing(line), report);
        merge.onward = Some(onward);
        merge.all(sightings).await?;
        Ok(merge.found)
    };
    beside_listing(line, ask, &Cursors::new(), merging).await
}

/// List the source, and make something of its events meanwhile.
async fn beside_listing(
    line: &Pipeline,
    ask: &Ask,
    cursors: &Cursors,
    merging: impl AsyncFnOnce(Events) -> Result<Reading>,
) -> Result<Reading> {
    let (mut sink, events) = source::channel_until(ask.stop.flag());
    let listing = async {
        let listed = match line.source.list(cursors, &mut sink).await {
            Ok(()) if ask.stop.is_set() => Err(Error::new(Kind::Canceled, "stopped by request")),
            listed => listed,
        };
        let flushed = if listed.is_ok() { sink.flush().await } else { Ok(()) };
        drop(sink);
        listed.and(flushed)
    };
    let (listed, merged): (Result<()>, Result<Reading>) = tokio::join!(listing, merging(events));
    match (listed, merged) {
        // A merge that stopped makes the listing stop too: its own reason comes first.
        (_, Err(error)) | (Err(error), Ok(_)) => Err(error),
        (Ok(()), Ok(found)) => Ok(found),
    }
}

pub(super) struct Merge<'a> {
    line: &'a Pipeline,
    only: Option<&'a str>,
    heal: &'a HashSet<String>,
    past: &'a Past,
    pub report: &'a mut Report,
    baseline: Lines,
    joined: Joined,
    strangers: Strangers,
    clashes: Clashes,
    strays: Strays,
    pub found: Reading,
    last: Option<(String, String)>,
    /// What the last run left, until something is sighted.
    ground: Option<Ground>,
    /// Where what is new goes at once.
    onward: Option<Onward>,
}

impl<'a> Merge<'a> {
    async fn start(line: &'a Pipeline, ask: &'a Ask, past: &'a Past, report: &'a mut Report) -> Result<Self> {
        let joined = Joined::with(line).await?;
        Ok(Merge::of(line, ask, past, joined, report))
    }

    /// For a store that is known to hold what the baseline says.
    pub fn on_firm_ground(
        line: &'a Pipeline,
        ask: &'a Ask,
        past: &'a Past,
        footing: &Footing,
        report: &'a mut Report,
    ) -> Self {
        let mut merge = Merge::of(line, ask, past, Joined::AsKnown, report);
        merge.found.stand_on(footing);
        merge
    }

    fn of(line: &'a Pipeline, ask: &'a Ask, past: &'a Past, joined: Joined, report: &'a mut Report) -> Self {
        let baseline = Lines::of(
            line.baseline.as_ref().unwrap_or(line.state.store()).clone(),
            keys::bases(&line.name),
            Ls::Values,
        );
        let (sum, all_new) = (footing::nothing_yet(line, ask), Some(PlanId::of(&line.name)));
        let found = Reading { sum, all_new, ..Reading::default() };
        let (only, heal) = (ask.only.as_deref(), &ask.heal);
        let (strangers, strays, clashes) = (Strangers::default(), Strays::default(), Clashes::default());
        let (last, ground, onward) = (None, None, None);
        Merge {
            line,
            only,
            heal,
            past,
            report,
            baseline,
            joined,
            strangers,
            clashes,
            strays,
            found,
            last,
            ground,
            onward,
        }
    }

    async fn all(&mut self, mut sightings: Sightings) -> Result<()> {
        while let Some(rows) = sightings.next().await? {
            for row in rows {
                match row {
                    Row::End(scope, end) => self.found.scopes.end(&scope, end),
                    Row::Note(text) => self.report.warn(text),
                    Row::Sighting(sighting) => self.sighting(sighting).await?,
                }
            }
            if let Some(onward) = &mut self.onward {
                onward.hand_on().await?;
            }
        }
        if let Some(ground) = self.ground.take() {
            if !self.found.scopes.all_unchanged() {
                ground.leave();
            } else if let Some(footing) = ground.holds().await? {
                footing::count(&footing, self.report);
                self.found.stand_on(&footing);
                return Ok(());
            }
        }
        while let Some(known) = self.baseline.pop().await? {
            self.unseen(known).await?;
        }
        self.meet_the_rest().await
    }

    /// A record of the baseline was met.
    fn know(&mut self, identity: &str, known: &Listed) -> Result<()> {
        self.found.known += 1;
        if let Some(sum) = &mut self.found.sum {
            let peeked = peek(known)?;
            sum.add(peeked.key.as_deref().unwrap_or(identity), &peeked.version);
        }
        Ok(())
    }

    /// What the store's listing says about an identity's key.
    async fn at(&mut self, identity: &str, known: Option<&Peek<'_>>) -> Result<Seen> {
        let (seen, passed) = self.joined.at(identity, known).await?;
        for key in passed {
            self.meet(key).await?;
        }
        Ok(seen)
    }

    async fn meet(&mut self, key: String) -> Result<()> {
        if self.only.is_some() {
            return Ok(());
        }
        if strays::are_ours(self.line) {
            self.found.unknown += 1;
            return self.strays.meet(self.line, key, &mut self.found.strays).await;
        }
        if !self.line.shape.recalls() || self.past.older.contains(&key) {
            return Ok(());
        }
        self.strangers.meet(self.line, key).await
    }

    /// Keys behind the last one that is known.
    async fn meet_the_rest(&mut self) -> Result<()> {
        while (self.line.shape.recalls() || strays::are_ours(self.line))
            && self.only.is_none()
            && let Joined::InOrder(lines) = &mut self.joined
            && let Some(line) = lines.pop().await?
        {
            self.meet(line.key).await?;
        }
        self.strays.look(self.line, &mut self.found.strays).await?;
        self.found.met_older = self.strangers.any_older(self.line).await?;
        Ok(())
    }

    async fn sighting(&mut self, sighting: Box<Sighting>) -> Result<()> {
        self.ground = None;
        let known = self.baseline_of(&sighting.identity).await?;
        if !self.wanted(&sighting.identity, Some(&sighting.entry), known.as_ref()) {
            return Ok(());
        }
        if self.past.knows(&sighting.identity) {
            self.found.met.insert(sighting.identity.clone());
        }
        if let Some((last, winner)) = &self.last {
            if *last == sighting.identity {
                let text = format!("{} is shadowed by {winner}: both are {last}", sighting.entry.id);
                self.report.warn(text);
                self.report.count(&sighting.entry.scope, |counts| {
                    counts.scanned += 1;
                    counts.skipped += 1;
                });
                let scope = sighting.entry.scope.to_string();
                let Sighting { identity, entry, .. } = *sighting;
                self.found.shadowed.push((entry.id, identity, scope));
                return Ok(());
            }
            if *last > sighting.identity && self.onward.is_none() {
                return Err(Error::bug(format!("{} came out of order after {last}", sighting.identity)));
            }
        }
        let (last, winner) = self.last.get_or_insert_default();
        sighting.identity.clone_into(last);
        sighting.entry.id.clone_into(winner);
        self.judge(sighting, known).await
    }

    pub async fn judge(&mut self, sighting: Box<Sighting>, known: Option<Listed>) -> Result<()> {
        match sighting.what {
            What::There => {}
            What::Bad(fault) => {
                // It is at the source: no stray, and the scope it is known of is not done with.
                let peeked = known.as_ref().map(peek).transpose()?;
                self.at(&sighting.identity, peeked.as_ref()).await?;
                self.found.scopes.doubt(&sighting.entry.id);
                self.found.failed.extend(peeked.map(|peeked| peeked.scope.to_string()));
                self.bad(&sighting.identity, &sighting.entry.scope, fault);
                return Ok(());
            }
            What::Gone => return if let Some(known) = known { self.push_gone(known).await } else { Ok(()) },
        }
        let peeked = known.as_ref().map(peek).transpose()?;
        if let Some(error) = self.clashes.meet(self.line, &sighting, peeked.as_ref()).await? {
            self.bad(&sighting.identity, &sighting.entry.scope, Fault::of(&error));
            return Ok(());
        }
        self.report.count(&sighting.entry.scope, |counts| counts.scanned += 1);
        let stamp = self.past.stamp(&*self.line.shape, &sighting, known.as_ref());
        let seen = self.at(&sighting.identity, peeked.as_ref()).await?;
        let known_as = peeked.as_ref().zip(known.as_ref()).map(|(peeked, known)| Known {
            stamp: known.fingerprint.unwrap_or(Fingerprint([0; 32])),
            body: peeked.body(),
            version: &peeked.version,
        });
        let finding = detect::sighted(stamp, &sighting.entry.version, known_as, &seen, self.line.drift);
        let known = known.as_ref().zip(peeked.as_ref());
        match finding {
            Finding::Same if self.heal.contains(&sighting.identity) => {
                self.push_step(sighting, Action::Change(Change::Update, Why::Drift), stamp, known, seen)?;
            }
            // Another scope lists it now, and answers for it from now on.
            Finding::Same if peeked.as_ref().is_some_and(|peeked| *peeked.scope != *sighting.entry.scope) => {
                self.void_decision(&sighting.identity);
                self.push_step(sighting, Action::Restamp, stamp, known, seen)?;
            }
            Finding::Same => {
                self.void_decision(&sighting.identity);
                self.report.count(&sighting.entry.scope, |counts| counts.unchanged += 1);
            }
            Finding::Drifted(class) => {
                self.report.warn(left_so(&sighting.identity, class));
                self.report.count(&sighting.entry.scope, |counts| counts.unchanged += 1);
            }
            Finding::Act(action) => self.push_step(sighting, action, stamp, known, seen)?,
        }
        Ok(())
    }

    fn push_step(
        &mut self,
        sighting: Box<Sighting>,
        action: Action,
        stamp: Fingerprint,
        known: Option<(&Listed, &Peek<'_>)>,
        seen: Seen,
    ) -> Result<()> {
        match (&mut self.found.all_new, action, &seen) {
            (Some(id), Action::Change(Change::Add, _), Seen::Nothing | Seen::NotAsked) => {
                id.add(&sighting.identity, Change::Add, Some(stamp), None);
            }
            (all_new, ..) => *all_new = None,
        }
        if known.is_none() && matches!(seen, Seen::At(_)) {
            self.found.unknown += 1;
        }
        let Sighting { identity, entry, .. } = *sighting;
        let step = Step {
            scope: entry.scope.clone(),
            identity,
            action,
            stamp: Some(stamp),
            entry: Some(entry),
            base: known.map(|(known, _)| kept(known)).transpose()?,
            seen,
            after: None,
        };
        match &mut self.onward {
            Some(onward) => onward.push(step),
            None => {
                self.found.touch(&step.scope, known.map(|(_, peeked)| &*peeked.scope));
                self.found.steps.push(&step)?;
            }
        }
        Ok(())
    }

    fn bad(&mut self, identity: &str, scope: &str, fault: Fault) {
        self.report.error(fault.at_key(identity));
        self.found.failed.push(scope.to_owned());
        self.report.count(scope, |counts| {
            counts.scanned += 1;
            counts.failed += 1;
        });
    }

    /// The baseline record of an identity; those passed on the way were not seen.
    async fn baseline_of(&mut self, identity: &str) -> Result<Option<Listed>> {
        loop {
            self.baseline.fill().await?;
            match self.baseline.peek() {
                Some(next) if next < identity => {
                    if let Some(known) = self.baseline.pop().await? {
                        self.unseen(known).await?;
                    }
                }
                Some(next) if next == identity => {
                    let known = self.baseline.pop().await?;
                    known.as_ref().map_or(Ok(()), |known| self.know(identity, known))?;
                    return Ok(known);
                }
                _ => return Ok(None),
            }
        }
    }

    async fn unseen(&mut self, known: Listed) -> Result<()> {
        let identity = keys::below(&keys::bases(&self.line.name), &known.key).to_owned();
        self.know(&identity, &known)?;
        if !self.wanted(&identity, None, Some(&known)) {
            return Ok(());
        }
        let peeked = peek(&known)?;
        let seen = self.at(&identity, Some(&peeked)).await?;
        if let Some(scope) = self.found.scopes.unchanged(&peeked.scope) {
            if self.is_amiss(&peeked, &identity, &seen) {
                self.found.stale.insert(scope.to_owned());
            }
            // What somebody decided about, or a shape remembers something of, is weighed like everything else.
            if peeked.carry.is_none() && !self.past.mentions(&identity) {
                self.report.count(&peeked.scope, |counts| {
                    counts.scanned += 1;
                    counts.unchanged += 1;
                });
                return Ok(());
            }
        }
        self.push_unseen(&known, &peeked, identity, seen, false)
    }

    /// Its scope did not change at the source, so it was not listed. Did the store lose it, or somebody change it?
    fn is_amiss(&mut self, peeked: &Peek<'_>, identity: &str, seen: &Seen) -> bool {
        match detect::unchanged(&peeked.version, seen, self.line.drift) {
            Finding::Act(_) => true,
            Finding::Same => self.heal.contains(identity),
            Finding::Drifted(class) => {
                self.report.warn(left_so(identity, class));
                false
            }
        }
    }

    async fn push_gone(&mut self, known: Listed) -> Result<()> {
        let identity = keys::below(&keys::bases(&self.line.name), &known.key).to_owned();
        let peeked = peek(&known)?;
        let seen = self.at(&identity, Some(&peeked)).await?;
        self.push_unseen(&known, &peeked, identity, seen, true)
    }

    fn push_unseen(
        &mut self,
        known: &Listed,
        peeked: &Peek<'_>,
        identity: String,
        seen: Seen,
        gone: bool,
    ) -> Result<()> {
        let step = Step {
            scope: peeked.scope.as_ref().into(),
            identity,
            action: Action::Change(Change::Delete, Why::Absent),
            stamp: None,
            entry: None,
            base: Some(kept(known)?),
            seen,
            after: None,
        };
        // The source's own word that it is gone needs no proof by absence.
        if !gone {
            return self.found.unseen.push(&step);
        }
        self.found.all_new = None;
        self.found.touch(&step.scope, None);
        self.found.steps.push(&step)
    }

    /// The source agrees with the store: whatever a person decided about another version is settled.
    fn void_decision(&mut self, identity: &str) {
        let decision = self.past.decisions.get(identity);
        if decision.is_some_and(|decision| decision.verdict != Verdict::Adopted) {
            self.found.void.push(identity.to_owned());
        }
    }

    /// `--only KEY`, an identity or the key it has in the store: everything else is as if it were not there, seen or unseen.
    fn wanted(&self, identity: &str, entry: Option<&Entry>, known: Option<&Listed>) -> bool {
        self.only.is_none_or(|only| is_called(self.line, only, (identity, entry, known)))
    }
}
