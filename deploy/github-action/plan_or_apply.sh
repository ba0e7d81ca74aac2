#!/usr/bin/env bash
# Plan $FILES and write the plan to the summary of the job; on a push to the default branch, apply that plan.
set -u
read -r -a files <<< "$FILES"
prune=()
[ "${PRUNE:-false}" = true ] && prune=(--prune)

plan=$(timewright plan "${files[@]}" "${prune[@]}" 2>&1)
code=$?
printf '%s\n' "$plan"
printf '### timewright plan\n\n```\n%s\n```\n' "$plan" >> "$GITHUB_STEP_SUMMARY"
case $code in
  0) echo "changed=false" >> "$GITHUB_OUTPUT"; exit 0 ;;
  3) echo "changed=true" >> "$GITHUB_OUTPUT" ;;
  *) exit "$code" ;;
esac

if [ "$GITHUB_EVENT_NAME" = push ] && [ "$GITHUB_REF" = "refs/heads/${DEFAULT_BRANCH:-main}" ]; then
  # The plan ends with its id. It is refused if the store changed since.
  timewright apply "${files[@]}" "${prune[@]}" --plan "${plan##* }" --reason "commit ${GITHUB_SHA:-unknown}"
fi
