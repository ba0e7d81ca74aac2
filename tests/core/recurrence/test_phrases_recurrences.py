"""Recurrences as people write them: what is read, and what is refused with which words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from timewright.core.input.decode import decode
from timewright.core.recurrence.phrases import Recurrence, list_rules, parse_moment, parse_recurrence
from timewright.core.recurrence.phrases.rules import GRAMMAR
from timewright.core.recurrence.phrases.tokens import split
from timewright.core.recurrence.triggers import AnyTrigger, with_anchor
from timewright.errors import InvalidCron, InvalidInput, InvalidZone

NOW = datetime(2026, 11, 17, 14, 30, tzinfo=UTC)

# A phrase and its triggers. A rule without BYMINUTE has BYMINUTE=0;BYSECOND=0; a zone is in brackets.
PHRASES = """
daily => cron 0 0 * * *
mondays at 9 and fridays at 17 => cron 0 9 * * 1 + cron 0 17 * * 5
monday at 9am, friday at 5pm => cron 0 9 * * 1 + cron 0 17 * * 5
mondays at 9 and 10 and weekends at 11 => cron 0 9,10 * * 1 + cron 0 11 * * 0,6
daily at 6 and on the 1st at 7 UTC => cron 0 6 * * * [UTC] + cron 0 7 1 * * [UTC]
M-F at 9am => cron 0 9 * * 1-5
every single day at 8 => cron 0 8 * * *
every single monday at 8 => cron 0 8 * * 1
half hourly => cron 0,30 * * * *
half-hourly on weekdays => cron 0,30 * * * 1-5
quarter past every hour => cron 15 * * * *
five past each hour => cron 5 * * * *
half past the hour => cron 30 * * * *
every month end at 23:59 => cron 59 23 L * *
month-end => cron 0 0 L * *
daily at six thirty pm => cron 30 18 * * *
every day at 9 => cron 0 9 * * *
weekdays at 9 => cron 0 9 * * 1-5
mon-fri at 9:00 => cron 0 9 * * 1-5
Mondays at 9am => cron 0 9 * * 1
every other monday at 9am => rrule FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;BYHOUR=9
every month on the 1st at 08:00 => cron 0 8 1 * *
first monday of the month at 9am => cron 0 9 * * 1#1
last day of the month at 23:00 => cron 0 23 L * *
first weekday of month => cron 0 0 1W * *
every day at 9am and 5pm => cron 0 9,17 * * *
every hour between 9am and 5pm => cron 0 9-17 * * *
every 15 minutes during business hours => cron */15 9-16 * * 1-5
every half hour => every 30m
every 1/2 hour => every 30m
every 1/4 of an hour => every 15m
every 1½ hours => every 1h30m
on the tenth => cron 0 0 10 * *
every month on the twenty-first at 9 => cron 0 9 21 * *
on the first and fifteenth => cron 0 0 1,15 * *
every thirty second => every 30s
every five minutes => every 5m
every day except sunday => cron 0 0 * * 1-6
every quarter => cron 0 0 1 1,4,7,10 *
at noon => cron 0 12 * * *
twice a day => cron 0 0,12 * * *
weekdays at 9 except holidays => cron 0 9 * * 1-5 except holidays
15m => every 15m
5 m => every 5m
1h 30m => every 1h30m
PT15M => every 15m
Mon..Fri 09:00 => cron 0 9 * * 1-5
rate(5 minutes) => every 5m
every 2nd day => rrule FREQ=DAILY;INTERVAL=2;BYHOUR=0
every 2nd day of the month => cron 0 0 2 * *
every second => every 1s
on the 15th and the last day of each month => cron 0 0 15,L * *
on 5 and the first monday at 9 => cron 0 9 5 * 1#1
first weekday and the 5th at 9 => cron 0 9 5,1W * *
friday the 13th at 9 and mondays at 10 => cron 0 9 13 * +5 + cron 0 10 * * 1
hourly => cron 0 * * * *
nightly => cron 0 0 * * *
nightly at 2 => cron 0 2 * * *
nightly at 10 => cron 0 22 * * *
daily at 9am => cron 0 9 * * *
weekly => cron 0 0 * * 1
monthly => cron 0 0 1 * *
yearly => cron 0 0 1 1 *
quarterly => cron 0 0 1 1,4,7,10 *
every week => cron 0 0 * * 1
every month => cron 0 0 1 * *
every year => cron 0 0 1 1 *
every 2 weeks => rrule FREQ=WEEKLY;INTERVAL=2;BYHOUR=0
every 3 days => rrule FREQ=DAILY;INTERVAL=3;BYHOUR=0
every 2 months => rrule FREQ=MONTHLY;INTERVAL=2;BYHOUR=0;SKIP=BACKWARD
every other day at 6 => rrule FREQ=DAILY;INTERVAL=2;BYHOUR=6
alternate days at 6 => rrule FREQ=DAILY;INTERVAL=2;BYHOUR=6
every other week on tuesday at 8:30 => rrule FREQ=WEEKLY;INTERVAL=2;BYDAY=TU;BYHOUR=8;BYMINUTE=30;BYSECOND=0
every 2nd tuesday of the month at 10 => cron 0 10 * * 2#2
second tuesday of every month at 10am => cron 0 10 * * 2#2
2nd tuesday => cron 0 0 * * 2#2
biweekly on friday => rrule FREQ=WEEKLY;INTERVAL=2;BYDAY=FR;BYHOUR=0
bi-weekly on friday at 5pm => rrule FREQ=WEEKLY;INTERVAL=2;BYDAY=FR;BYHOUR=17
bimonthly on the 1st => rrule FREQ=MONTHLY;INTERVAL=2;BYMONTHDAY=1;BYHOUR=0
every fortnight on monday => rrule FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;BYHOUR=0
every 90 minutes => every 1h30m
three times a day => cron 0 0,8,16 * * *
3x daily => cron 0 0,8,16 * * *
twice an hour => cron 0,30 * * * *
4 times an hour => cron */15 * * * *
once a week => cron 0 0 * * 1
once a week on friday at 5pm => cron 0 17 * * 5
twice a week on mon and thu => cron 0 0 * * 1,4
every hour on the hour => cron 0 * * * *
every hour at :15 => cron 15 * * * *
every 2 hours at :15 => cron 15 */2 * * *
hourly at 15 and 45 past => cron 15,45 * * * *
every hour at 15 past => cron 15 * * * *
at 15 minutes past the hour => cron 15 * * * *
every hour at minute 15 and 45 => cron 15,45 * * * *
mon, wed and fri at 10:30 => cron 30 10 * * 1,3,5
mon/wed/fri at 10:30 => cron 30 10 * * 1,3,5
tue & thu at noon => cron 0 12 * * 2,4
monday to friday at 08:15 => cron 15 8 * * 1-5
weekends at 10 => cron 0 10 * * 0,6
sat and sun at midnight => cron 0 0 * * 0,6
every weekday at 9am Europe/Berlin => cron 0 9 * * 1-5 [Europe/Berlin]
every day at 9am in america/new_york => cron 0 9 * * * [America/New_York]
every weekday at half past nine => cron 30 9 * * 1-5
every day at quarter to ten => cron 45 9 * * *
every day at quarter past 9 pm => cron 15 21 * * *
every day at 10 to 9 => cron 50 8 * * *
every day at nine => cron 0 9 * * *
every day at nine thirty => cron 30 9 * * *
every day at 9.30 => cron 30 9 * * *
every day at 9.30pm => cron 30 21 * * *
every day at 0900 => cron 0 9 * * *
every day at 1730 => cron 30 17 * * *
every day at 9:15am and 5:30pm => cron 15 9 * * * + cron 30 17 * * *
every day at 9 and 5pm => cron 0 9,17 * * *
every hour from 9 to 17 => cron 0 9-17 * * *
every 30 minutes 9-17 on weekdays => cron 0,30 9-16 * * 1-5 + cron 0 17 * * 1-5
every 15 minutes between 9am and 5pm mon-fri => cron */15 9-16 * * 1-5 + cron 0 17 * * 1-5
every 10 minutes between 22:00 and 06:00 => cron */10 0-5,22,23 * * * + cron 0 6 * * *
every 30 seconds during business hours => cron 0,30 * 9-16 * * 1-5
every 2 hours on weekdays => cron 0 */2 * * 1-5
every 90 minutes on weekends => cron 0 */3 * * 0,6 + cron 30 1,4,7,10,13,16,19,22 * * 0,6
1st and 15th of the month at 9 => cron 0 9 1,15 * *
1st, 10th and 20th of every month at noon => cron 0 12 1,10,20 * *
on day 1 and 15 of every month => cron 0 0 1,15 * *
every month on 31 at 18:00 => rrule FREQ=MONTHLY;BYMONTHDAY=31;BYHOUR=18;SKIP=BACKWARD
every month on 31 at 18:00 or skip => cron 0 18 31 * *
3 months on 31 at 18:00 => rrule FREQ=MONTHLY;INTERVAL=3;BYMONTHDAY=31;BYHOUR=18;SKIP=BACKWARD
every 25 dec => cron 0 0 25 12 *
every year on 25 december at 8am => cron 0 8 25 12 *
every december 25th => cron 0 0 25 12 *
dec 25 and jan 1 at 9 => cron 0 9 1 1 * + cron 0 9 25 12 *
1 jan and 1 jul => cron 0 0 1 1,7 *
1 jan, 1 apr, 1 jul and 1 oct at 6:00 => cron 0 6 1 1,4,7,10 *
every year on feb 29 => rrule FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=29;BYHOUR=0;SKIP=BACKWARD
every friday the 13th => cron 0 0 13 * +5
last friday of the month at 17:00 => cron 0 17 * * 5L
first and third monday of the month => cron 0 0 * * 1#1,1#3
second to last friday of the month => rrule FREQ=MONTHLY;BYDAY=-2FR;BYHOUR=0
last weekday of the month at 18:00 => cron 0 18 LW * *
second weekday of the month => rrule FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYHOUR=0;BYSETPOS=2
first business day of the month at 9 => cron 0 9 1W * *
weekday nearest the 15th of the month => cron 0 0 15W * *
first day of the quarter => cron 0 0 1 1,4,7,10 *
last day of the quarter => cron 0 0 L 3,6,9,12 *
last day of the year at 23:59 => cron 59 23 L 12 *
first monday of january at 9 => cron 0 9 * 1 1#1
first monday of the year => cron 0 0 * 1 1#1
every day in december at 8 => cron 0 8 * 12 *
mondays from march to october at 7 => cron 0 7 * 3-10 1
every january => cron 0 0 1 1 *
every 1st of january => cron 0 0 1 1 *
every day except weekends => cron 0 0 * * 1-5
weekdays except friday at 9 => cron 0 9 * * 1-4
every day at 9 except the 1st => cron 0 9 2-31 * *
every monday except in august => cron 0 0 * 1-7,9-12 1
every weekday at 9 except holidays and august => cron 0 9 * 1-7,9-12 1-5 except holidays
on the 1st of every month except sundays => cron 0 0 1 * +1-6
every 15 minutes except sunday => cron */15 * * * 1-6
every morning at 7 => cron 0 7 * * *
every evening at 6:30 => cron 30 18 * * *
every night at 10 => cron 0 22 * * *
every night => cron 0 0 * * *
weekday evenings at 8 => cron 0 20 * * 1-5
start of the month => cron 0 0 1 * *
end of the month at 22:00 => cron 0 22 L * *
every day every week => cron 0 0 * * *
every hour of every day => cron 0 * * * *
every day of the month => cron 0 0 * * *
at 9 on mondays => cron 0 9 * * 1
9am on weekdays => cron 0 9 * * 1-5
17:30 mon-thu => cron 30 17 * * 1-4
0 9 * * 1-5 => cron 0 9 * * 1-5
@daily => cron @daily
@every 5m => every 5m
*/15 * * * * => cron */15 * * * *
cron(0 9 ? * MON-FRI *) => cron 0 9 ? * MON-FRI
cron(0 9 ? * 2-6 *) => cron 0 9 ? * 1-5
cron(15 10 ? * 6L *) => cron 15 10 ? * 5L
FREQ=WEEKLY;BYDAY=MO => rrule FREQ=WEEKLY;BYDAY=MO
RRULE:FREQ=MONTHLY;BYDAY=2TU;COUNT=10 => rrule FREQ=MONTHLY;BYDAY=2TU;COUNT=10
rate(1 day) => every 1d
rate(1 hour) => every 1h
*-*-* 09:00 => cron 0 9 * * *
Mon *-*-* 09:00:00 => cron 0 9 * * 1
*-*-01 00:00 => cron 0 0 1 * *
Sat *-*-1..7 18:00 => cron 0 18 1-7 * +6
*:0/15 => cron */15 * * * *
*:30 => cron 30 * * * *
*-12-25 => cron 0 0 25 12 *
9..17:00 => cron 0 9-17 * * *
every 1.5 hours => every 1h30m
every hour and a half => every 1h30m
every 2 hours and 30 minutes => every 2h30m
every quarter of an hour => every 15m
every quarter hour => every 15m
every minute => every 1m
every half day => every 12h
1d => every 1d
every 7d at 9 => rrule FREQ=DAILY;INTERVAL=7;BYHOUR=9
every 36h => every 1d12h
every day at noon and midnight => cron 0 0,12 * * *
every thursday at 4 o'clock => cron 0 4 * * 4
every sunday at 9 in the morning => cron 0 9 * * 0
last day of february => cron 0 0 L 2 *
every weekday at 9, Europe/Berlin => cron 0 9 * * 1-5 [Europe/Berlin]
hourly on calendar office => cron 0 * * * * only office
Every Monday At 9AM => cron 0 9 * * 1
every   day   at   9am. => cron 0 9 * * *
at noon on the last friday of every month => cron 0 12 * * 5L
every two weeks on wednesday at 14:00 => rrule FREQ=WEEKLY;INTERVAL=2;BYDAY=WE;BYHOUR=14
every three hours => every 3h
every other weekend => rrule FREQ=WEEKLY;INTERVAL=2;BYDAY=SA,SU;BYHOUR=0
alternate mondays at 9 => rrule FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;BYHOUR=9
once every 2 hours => every 2h
once a day at 9 => cron 0 9 * * *
each day at 9 => cron 0 9 * * *
every tues and thurs at 9 => cron 0 9 * * 2,4
every workday at 8 => cron 0 8 * * 1-5
business days at 9 => cron 0 9 * * 1-5
monthly on the first monday at 9 => cron 0 9 * * 1#1
annually on june 1 => cron 0 0 1 6 *
every 6 months => rrule FREQ=MONTHLY;INTERVAL=6;BYHOUR=0;SKIP=BACKWARD
every 1st => cron 0 0 1 * *
every 15th => cron 0 0 15 * *
every last friday at 4pm => cron 0 16 * * 5L
13:00 => cron 0 13 * * *
9am => cron 0 9 * * *
6pm daily => cron 0 18 * * *
every 100 years => rrule FREQ=YEARLY;INTERVAL=100;BYHOUR=0;SKIP=BACKWARD
every mon-wed,fri at 9 => cron 0 9 * * 1-3,5
first of the month => cron 0 0 1 * *
on the first at 9 => cron 0 9 1 * *
every monday, 9am => cron 0 9 * * 1
at 9, every monday => cron 0 9 * * 1
mon,wed 9:00,17:00 => cron 0 9,17 * * 1,3
weekdays @ 9 => cron 0 9 * * 1-5
every weekday @9:30 => cron 30 9 * * 1-5
every 2 hours between 8 and 20 on weekdays => cron 0 8,10,12,14,16,18,20 * * 1-5
every 5 min => every 5m
every 10 mins => every 10m
every 1 hour => every 1h
every 1 day => cron 0 0 * * *
on weekdays at 9 and 17 => cron 0 9,17 * * 1-5
twice daily at 9 and 17 => cron 0 9,17 * * *
every third day => rrule FREQ=DAILY;INTERVAL=3;BYHOUR=0
the 1st of every quarter => cron 0 0 1 1,4,7,10 *
every jan, apr, jul and oct on the 1st => cron 0 0 1 1,4,7,10 *
weekly on sunday at 3am => cron 0 3 * * 0
every sunday night at 11 => cron 0 23 * * 0
every sat morning at 10 => cron 0 10 * * 6
mon thru fri 8am => cron 0 8 * * 1-5
every half-hour => every 30m
every hour, on the half hour => cron 30 * * * *
5 minutes past every hour => cron 5 * * * *
at 5 past every hour => cron 5 * * * *
every hour at five past => cron 5 * * * *
midnight every sunday => cron 0 0 * * 0
noon on weekdays => cron 0 12 * * 1-5
daily @ 6:30 => cron 30 6 * * *
@weekly => cron @weekly
every 1st and 15th at 9 => cron 0 9 1,15 * *
last working day of the month => cron 0 0 LW * *
penultimate friday of the month => rrule FREQ=MONTHLY;BYDAY=-2FR;BYHOUR=0
the 2nd last day of the month => cron 0 0 L-1 * *
every 31st => rrule FREQ=MONTHLY;BYMONTHDAY=31;BYHOUR=0;SKIP=BACKWARD
every 30th of the month => rrule FREQ=MONTHLY;BYMONTHDAY=30;BYHOUR=0;SKIP=BACKWARD
end of the quarter => cron 0 0 L 3,6,9,12 *
beginning of every month => cron 0 0 1 * *
the first of january => cron 0 0 1 1 *
monthly on the last friday at 4pm => cron 0 16 * * 5L
each monday and each friday => cron 0 0 * * 1,5
every mon - fri => cron 0 0 * * 1-5
every day at 9:00:30 => cron 30 0 9 * * *
every day but sunday => cron 0 0 * * 1-6
daily, not on weekends => cron 0 0 * * 1-5
every weekday at 9am except on public holidays => cron 0 9 * * 1-5 except holidays
workdays 09:00-17:00 every 30 minutes => cron 0,30 9-16 * * 1-5 + cron 0 17 * * 1-5
every day at 9, 12 and 5pm => cron 0 9,12,17 * * *
every 2 weeks on mon at 09:00 Europe/Berlin => rrule FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;BYHOUR=9 [Europe/Berlin]
every mon and thu at 7:45pm => cron 45 19 * * 1,4
on the last day of every quarter at 6pm => cron 0 18 L 3,6,9,12 *
every 3 months on the 1st => rrule FREQ=MONTHLY;INTERVAL=3;BYMONTHDAY=1;BYHOUR=0
every other month on the 15th at noon => rrule FREQ=MONTHLY;INTERVAL=2;BYMONTHDAY=15;BYHOUR=12
every year on the first monday of september => cron 0 0 * 9 1#1
every 4 years on feb 29 => rrule FREQ=YEARLY;INTERVAL=4;BYMONTH=2;BYMONTHDAY=29;BYHOUR=0;SKIP=BACKWARD
every 2 years on 1 july at 9 => rrule FREQ=YEARLY;INTERVAL=2;BYMONTH=7;BYMONTHDAY=1;BYHOUR=9
on the 1st and every friday => cron 0 0 1 * 5
every minute of every hour => cron * * * * *
every minute during business hours => cron * 9-16 * * 1-5
every minute between 9:00 and 9:10 => cron 0-10 9 * * *
every 15 seconds => every 15s
every 1h30m => every 1h30m
every 1 week => cron 0 0 * * 1
every 12 weeks on friday => rrule FREQ=WEEKLY;INTERVAL=12;BYDAY=FR;BYHOUR=0
at 9am utc every day => cron 0 9 * * * [UTC]
every day at 9am (Europe/Berlin) => cron 0 9 * * * [Europe/Berlin]
mondays, tuesdays at 8 => cron 0 8 * * 1,2
8am mondays and wednesdays => cron 0 8 * * 1,3
sundays => cron 0 0 * * 0
every 5th of the month => cron 0 0 5 * *
every 5 days at 10:00 => rrule FREQ=DAILY;INTERVAL=5;BYHOUR=10
every 20 minutes from 8:00 to 18:00 monday to saturday => cron */20 8-17 * * 1-6 + cron 0 18 * * 1-6
every hour from 08:30 to 17:30 => cron 30 8-17 * * *
every hour on weekdays between 9 and 17 except holidays => cron 0 9-17 * * 1-5 except holidays
every day at 09:00 and 09:30 => cron 0,30 9 * * *
every thirty minutes => every 30m
every sixty seconds => every 1m
every twenty four hours => every 1d
every 24 hours => every 1d
every day at 3 am and 3 pm => cron 0 3,15 * * *
every weekday and saturday at 9 => cron 0 9 * * 1-6
weekdays and sat at 9 => cron 0 9 * * 1-6
first friday => cron 0 0 * * 5#1
last friday => cron 0 0 * * 5L
last day => cron 0 0 L * *
the 13th => cron 0 0 13 * *
on monday => cron 0 0 * * 1
monday => cron 0 0 * * 1
friday 5pm => cron 0 17 * * 5
H H * * * => cron H H * * *
0 9 * * 1-5 Europe/Berlin => cron 0 9 * * 1-5 [Europe/Berlin]
every 3rd of july => cron 0 0 3 7 *
july 4th at noon => cron 0 12 4 7 *
every 4th of july at noon => cron 0 12 4 7 *
every day at nine forty-five => cron 45 9 * * *
CRON_TZ=Europe/Berlin 0 9 * * * => cron 0 9 * * * [Europe/Berlin]
9am Europe/Berlin => cron 0 9 * * * [Europe/Berlin]
mon-thu and sat at 9 => cron 0 9 * * 1-4,6
every day except mon-thu => cron 0 0 * * 0,5,6
every day at 8 except december to february => cron 0 8 * 3-11 *
*-*-* *:00:00 => cron 0 * * * *
10 9 1 1 2 => cron 10 9 1 1 2
every third thursday of november => cron 0 0 * 11 4#3
every 2nd and 4th saturday at 10 => cron 0 10 * * 6#2,6#4
every friday 13th => cron 0 0 13 * +5
every week day at 9 => cron 0 9 * * 1-5
last week day of the month => cron 0 0 LW * *
start of each hour => cron 0 * * * *
top of the hour => cron 0 * * * *
every hour at quarter past => cron 15 * * * *
every hour at half past => cron 30 * * * *
quarter to the hour => cron 45 * * * *
at 5 minutes to the hour => cron 55 * * * *
10 minutes before the hour => cron 50 * * * *
2 per day => cron 0 0,12 * * *
5/hour => cron */12 * * * *
only weekdays at 9 => cron 0 9 * * 1-5
weekdays at 9 only => cron 0 9 * * 1-5
weekdays at 9 and at 10 on saturdays => cron 0 9 * * 1-5 + cron 0 10 * * 6
cron(0/15 9 ? * MON-FRI *) => cron 0-59/15 9 ? * MON-FRI
every day at 9:30 and 17 UTC => cron 30 9 * * * [UTC] + cron 0 17 * * * [UTC]
"""
ROWS = [tuple(line.split(" => ")) for line in PHRASES.strip().splitlines()]

# A phrase with two meanings, and both of them as they can be written.
TWO_READINGS = """
every 2nd tuesday => every 2 weeks on tue; or 2nd tue of every month
every third thursday at 9 => every 3 weeks on thu; or 3rd thu of every month
biweekly => every 2 weeks on mon; or every mon and thu
biweekly on mon and thu => every 2 weeks on mon; or every mon and thu
bimonthly => every 2 months on the 1st; or on the 1st and 15th of every month
biannually => every 2 years on 1 january; or 1 jan and 1 jul
every other weekday => every mon, wed and fri; or every 2 weeks on weekdays
every 3 weekdays => every 5 days; or every 3 weeks on weekdays
every 10 business days => every 2 weeks on mon; or every 10 weeks on weekdays
saturday night at 2 => saturday at 02:00; or sunday at 02:00
sunday night at midnight => sunday at 00:00; or monday at 00:00
every first day => every day; or 1st day of every month
every day at half nine => write half past 9 or 8:30
every day at 8 and 9pm => write 8am or 8pm
every hour from 9 to 5 => write between 9am and 5pm or between 9am and 5am
every hour from 1 to 5pm => write 1am or 1pm
every day at 12 in the morning => write noon or midnight
"""

# A phrase that lacks something, or whose parts contradict each other, and a word of the message.
REFUSED = """
mondays and the 15th at 9 except the 1st => cannot be combined
every weekday morning => time in the morning
every monday night => time in the night
every day between 9 and 17 => how often
twice a week => which days
every day at 13:01am => 13:01am
day at 13:01am => 13:01am
every day at 0am => 0:00am
year on octopus 3 => 'octopus'
every year on feb 30 => day 30
every year on the 15th => month
every day at 24:00 => hour 24
every day at 9:75 => minute 75
mondays at 9 on the 15th => days in two places
mondays on the 15th => days in two places
monday 25 dec => days in two places
once a week on mon and fri => once a week
weekly daily => two ways
weekly *-*-* 03:00 => two ways
every 2 weeks on monday and every friday => others every week
end of each hour => end of an interval
daily at 9 to 5 => 9 to 5
every day at 3 and every hour => 'every'
every 7 hours on weekdays => does not divide
every 10 minutes between 22:00 and 06:00 on weekdays => midnight
every 8 hours at 9 => interval and a time of day
every 0 minutes => has the length zero
every 5 => no unit after 5
every first day => two readings
every 5 minutes at night => interval and a time of day
the 30th of february => do not have
every other day on mondays => do not fit
PT0S => has the length zero
every => ends too early
monthly on monday => do not fit
every week on the 15th => do not fit
every day on the 15th => do not fit
monthly on the 32nd => day 32
every 6th monday of the month => asks for number 6 of a month
every monday at 9 starting 2027-01-01 => start or an end
every day until friday => start or an end
every day except weekdays and weekends => excludes every day
every 15 minutes during business hours on sunday => weekend
every day at 9am Europe/Berlin and at 10am => understood
every 12 hours, at 6 => interval and a time of day
weekdays at 9 except holidays and weekends at 11 => 2 times of day
every day at 9 in Berlin => 'berlin'
tomorrow 9am => one point in time
25 dec 2027 => one point in time
every 7 minutes on weekdays => does not divide
every 36 hours on weekdays => fit into a day
every 1.5 months => 1.5 months
every 2 months and 3 days => adds months
twice a day at 9 => 1 times
7 times a day => 7 times
3 times a week on mon and thu => which days
every 2 weeks every day => twice
9 to 17 => how often
Europe/Berlin => how often
except sunday => how often
every day at 9 in the evening at 10 => 2 times of day
every sunday except holidays except calendar => 'calendar'
*-*-32 => pattern
*:99 => pattern
cron(0 9 * *) => 4 fields
"""


def shown(found: Recurrence) -> str:
    """Return the triggers and calendars as the table writes them."""
    triggers = [f"{one.kind} {one.text}" + (f" [{one.zone}]" if one.zone else "") for one in found.triggers]
    text = " + ".join(triggers).replace(";BYMINUTE=0;BYSECOND=0", "")
    text += f" except {','.join(found.excluded)}" if found.excluded else ""
    return text + (f" only {','.join(found.only)}" if found.only else "")


@pytest.mark.parametrize(("text", "expected"), ROWS)
def test_a_phrase_is_read_as_these_triggers(text: str, expected: str) -> None:
    assert shown(parse_recurrence(text)) == expected
    if "calendar" not in text and "TZ=" not in text:
        assert shown(parse_recurrence(text.title().replace("Europe/Berlin", "EUROPE/berlin"))) == expected


def test_more_than_91_phrases_are_read() -> None:
    assert len(ROWS) > 200


@pytest.mark.parametrize(("text", "_"), ROWS)
def test_the_sentence_that_repeats_a_phrase_reads_as_the_same_triggers(text: str, _: str) -> None:
    for zone in (None, "Europe/Berlin"):
        found = parse_recurrence(text, zone=zone)
        assert parse_recurrence(found.read_as, zone=zone) == found


@pytest.mark.parametrize(
    ("text", "readings"), [line.split(" => ") for line in TWO_READINGS.strip().splitlines()]
)
def test_an_ambiguous_phrase_is_refused_with_both_readings(text: str, readings: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        parse_recurrence(text)
    assert "two readings" in refusal.value.message
    assert refusal.value.fix == readings


@pytest.mark.parametrize(("text", "word"), [line.split(" => ") for line in REFUSED.strip().splitlines()])
def test_a_phrase_that_makes_no_sense_is_refused_with_what_is_wrong(text: str, word: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        parse_recurrence(text, field="trigger.every")
    error = refusal.value
    assert word in error.message
    assert error.field == "trigger.every"
    assert error.value == text
    assert error.rule
    assert error.fix


def test_cron_and_zones_keep_their_own_errors() -> None:
    with pytest.raises(InvalidCron):
        parse_recurrence("61 * * * *")
    with pytest.raises(InvalidZone):
        parse_recurrence("every day at 9 EST")


@pytest.mark.parametrize("text", ["", "  ", "x" * 257, "every day " * 40])
def test_empty_and_long_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_recurrence(text)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("5m", "every 5m"),
        ("day at 9", "every day at 9"),
        ("daily at 9", "daily at 9"),
        ("2 weeks on mon", "every 2 weeks on mon"),
        ("every 5m", "every 5m"),
        ("@every 5m", "every 5m"),
        ("0 9 * * *", "0 9 * * *"),
        ("weekday at 9", "every weekday at 9"),
    ],
)
def test_the_value_of_a_field_named_every_may_leave_the_word_out(text: str, full: str) -> None:
    assert parse_recurrence(text, after_every=True) == parse_recurrence(full)


def test_an_ambiguous_value_of_a_field_named_every_is_refused_too() -> None:
    with pytest.raises(InvalidInput, match="two readings"):
        parse_recurrence("2nd tuesday", after_every=True)


@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        ("weekdays at 9", "every weekday at 09:00, Europe/Berlin"),
        ("every half hour", "every 30 minutes"),
        ("every month on 31 at 18:00", "on the 31st or the last day of every month at 18:00, Europe/Berlin"),
        (
            "every other monday at 9am",
            "every 2 weeks on Monday at 09:00, counted from its start, Europe/Berlin",
        ),
        ("nightly UTC", "every day at 00:00, UTC"),
        ("0 9 * * 1-5", "cron 0 9 * * 1-5 (at 09:00 on Monday through Friday), Europe/Berlin"),
    ],
)
def test_the_sentence_is_plain_and_names_the_zone_of_wall_clock_times(text: str, read_as: str) -> None:
    assert parse_recurrence(text, zone="Europe/Berlin").read_as == read_as


# A refused phrase, and how often a year the phrase that was meant would fire.
ASKED = [
    ("every monday night", 52),
    ("every monday at half nine", 52),
    ("daily at 25", 365),
    ("yearly on the 15th", 1),
    ("year on octopus 3", 1),
    ("every 7 hours on weekdays", 1100),
    ("every 8 hours at 9", 1095),
    ("every 1.5 months", 8),
    ("quarterly on monday", 4),
    ("monthly on monday", 12),
    ("every wek on monday", 52),
    ("monthly at 25:00", 12),
    ("every year on foo at 9", 1),
    ("january blah", 1),
    ("every quarter on the 40th", 4),
    ("twice a month", 24),
    ("twice a year", 2),
    ("every moth on the 1st", 12),
    ("7 times a day", 7 * 365),
    ("biannually", 2),
    ("cron(0 9 1 * ?)", 12),
    ("*-12-32", 1),
    ("every even day at 10", 183),
    ("every other 3rd day at 9", 60),
    ("every 3 days at", 122),
    ("every day in even weeks at 9", 183),
    ("every third thursday", 18),
    ("every 5 weekdays", 53),
    ("every 10 business days", 26),
    ("week 13", 52),
    ("fri 13", 52),
    ("daily at 9 to 5", 365),
    ("every hour on mondays at 9", 52),
    ("cron(0 9 * * *)", 365),
    ("every 7 minutes on weekdays", 261 * 206),
]


@pytest.mark.parametrize(("text", "per_year"), ASKED)
def test_a_refusal_proposes_nothing_that_fires_more_often_than_what_was_asked(
    text: str, per_year: int
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        parse_recurrence(text)
    for part in str(refusal.value.fix).replace("; or ", ", or ").split(", or "):
        try:
            proposed = parse_recurrence(part)
        except InvalidInput:
            continue
        assert firings_in_a_year(proposed) <= per_year + 1, part


def firings_in_a_year(found: Recurrence) -> int:
    start = parse_moment("2027-01-01", now=NOW, zone="UTC").at
    count = 0
    for spec in found.triggers:
        trigger = with_anchor(decode(spec.fields(), AnyTrigger), start)
        count += len(trigger.between(start, start.replace(year=2028), limit=100_000))
    return count


def test_every_example_of_the_rules_is_read() -> None:
    rules = list_rules()
    assert len(rules) > 30
    for rule in rules:
        for example in rule.examples:
            if rule.group == "instant":
                assert parse_moment(example, now=NOW, zone="Europe/Berlin").read_as
            elif rule.group == "recurrence":
                assert parse_recurrence(example).read_as
            else:
                assert GRAMMAR.parse(rule.name, split(example)).complete, example
        assert rule.meaning
