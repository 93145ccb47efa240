#!/bin/bash
# Written by `orchestrator run`. To end the run: scancel --me --name={name}
{head}
say() {{ echo "$(date +%s.%N) job $SLURM_JOB_ID: $*"; }}
hand_on() {{
  say "near the time limit: {near}"
  kill -USR1 "$client"
{hand_on}
}}
early=
trap early=USR1 USR1
trap early=TERM TERM
cd {folder} || exit 1
export {hands_on}
say begins
{command} &
client=$!
trap hand_on USR1
trap 'early=TERM; kill -TERM "$client"' TERM
# A signal that came before there was a client.
case "$early" in USR1) hand_on;; TERM) kill -TERM "$client";; esac
# Each signal interrupts the wait.
while wait "$client"; code=$?; kill -0 "$client" 2>/dev/null; do :; done
wait "$client"; code=$?
say "ends with exit code $code"
{end}exit "$code"
