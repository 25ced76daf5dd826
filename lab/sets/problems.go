package sets

import "talf/internal/demo"

// problems are word problems like those that school books set, without answers. {2-9} stands for
// a number from that range.
var problems = []string{
	"{h} has {2-9} {box} with {3-24} {goods} in each. {He} gives [half|a third|a quarter] of the {goods} to {g}. How many {goods} does {h} have left?",
	"{h} buys {2-12} {goods} for ${2-9} each and {2-8} {wares} for ${3-15} each. How much does {he} [spend|pay] in total?",
	"{h} [earns|makes] ${8-25} an hour [as a {job}|working as a {job}]. Last week {he} worked {3-9} hours a day for {3-6} days. How much did {he} earn?",
	"A [bus|train|ferry] has {20-60} passengers. At the first stop {3-15} people get off and {2-18} get on. At the second stop {2-9} get off and twice as many get on. How many passengers are there now?",
	"{h} reads {10-40} pages of a book every [day|evening]. The book has {120-480} pages. After {3-6} days, how many pages does {he} still have to read?",
	"{h} is {2-12} years older than {g}. In {3-10} years, {g} will be {15-40} years old. How old is {h} now?",
	"A [farmer|gardener] plants {4-15} rows of {crops} with {6-30} plants in each row. {2-9} plants in every row [die|are eaten by rabbits]. How many plants are left?",
	"{h} drives {40-70} miles an hour for {2-6} hours and then {20-45} miles an hour for {2-5} hours. How many miles does {he} drive [in all|altogether]?",
	"There are {3-9} classes in a school. Each class has {18-32} students. If {2-8} students from each class [are sick|go on a trip], how many students are [still at school|in school that day]?",
	"{h} saves ${5-30} a week. {His} {elders} give {him} ${20-90} for {his} birthday. How many weeks must {he} save to buy a {wares} that costs ${150-400}?",
	"A [baker|cook] makes {20-90} {foods} in the morning and twice as many in the afternoon. {He} sells {10-50} of them. How many {foods} are left?",
	"{h} runs {2-8} miles on Monday, twice as far on Tuesday and {2-6} miles less than that on Wednesday. How many miles does {he} run in the three days?",
	"{h} and {g} collect {goods}. {h} has {10-60} and {g} has {2-5} times as many. How many {goods} do they have together?",
	"A [shirt|coat|bag] costs ${20-90}. [During a sale|This week] it is {10-50}% off. How much does {h} save if {he} buys {2-5} of them?",
	"{h} cuts a [rope|ribbon|board] of {24-96} feet into pieces of {2-6} feet each. {He} uses {2-8} of the pieces. How many feet are left?",
	"{h} has ${20-90}. {He} spends ${3-15} on {foods} and ${2-12} on a [book|ticket|drink]. {He} then divides the rest equally [among|between] {his} {2-4} [sisters|brothers|friends]. How much does each of them get?",
	"[Every day|Each morning], {h} feeds {his} {3-20} {beasts} {2-5} cups of food each. A bag holds {60-300} cups. How many days does a bag last?",
	"A tank holds {100-600} gallons of water. It loses {2-12} gallons an hour. How many gallons are left after {5-20} hours?",
	"{h} sells {goods} for ${2-9} each. On Monday {he} sells {10-40} of them, and on Tuesday {2-3} times as many. How much money does {he} make?",
	"There are {30-120} [trees|flowers|seats] in a [park|garden|hall]. {10-28} of them are {color}, and a third of the rest are white. How many are white?",
	"{h} takes {2-5} [pills|vitamins] a day for {2-8} weeks. A bottle has {30-90} [pills|of them] in it and costs ${5-20}. How much does {he} pay?",
	"{h} has twice as many {goods} as {g}. {g} has {3-18} fewer {goods} than {k}. If {k} has {25-80} {goods}, how many does {h} have?",
	"A [class|team|club] sells {foods} to raise ${300-900}. They have sold {40-90} at ${2-5} each. How much more money do they need?",
	"{h} mows {2-6} lawns on each day of the weekend. Each lawn takes {20-60} minutes. How many hours does {he} work?",
	"{h} mixes {2-9} cups of {color} paint with {2-7} cups of white paint. {He} needs {4-6} times as much for the whole wall. How many cups of paint does {he} need?",
	"A [hotel|building] has {3-12} floors with {8-30} rooms on each. [{10-40}%|Half|A quarter] of the rooms are empty. How many rooms are taken?",
	"{h} makes {2-6} [bracelets|scarves|cakes] a day and sells each for ${5-30}. The [material|wool|flour] for one costs ${2-4}. What is {his} profit in {2-4} weeks?",
	"{g} is {3-9} inches taller than {h}. {k} is {2-6} inches shorter than {g}. If {h} is {48-66} inches tall, how tall is {k}?",
	"It takes {h} {10-45} minutes to [walk|cycle|drive] to work and twice as long to come home. How many [minutes|hours] does {he} spend on the way in {2-5} weeks of five days?",
	"{h} bakes {24-96} {foods}. {His} {elders} eat {2-9} of them, and {he} puts the rest into {box} of {3-8}. How many {box} does {he} need?",
	"A [movie|concert] ticket costs ${6-20} for adults and ${3-9} for children. {h} goes with {2-4} adults and {2-7} children. How much do they pay?",
	"{h} had {30-99} {goods}. {He} lost {3-12} of them, and then {g} gave {him} {2-4} times as many as {he} had lost. How many {goods} does {h} have now?",
	"A [garden|field|room] is {8-40} feet long and {5-25} feet wide. [Fence|Tape] costs ${2-9} a foot. How much does it cost to go all the way around?",
	"{h} [plays|practices] the [piano|violin|drums] for {20-50} minutes a day and {10-30} minutes longer on [Saturdays|Sundays]. How many minutes is that in {2-6} weeks?",
	"Last year {h} planted {10-60} {crops}. This year {he} planted {20-50}% more. How many {crops} did {he} plant in both years?",
	"A [car|truck] uses {2-6} gallons of [gas|fuel] for every {40-90} miles. How many gallons does it need for {200-700} miles?",
	"{h}, {g} and {k} share {60-240} {goods}. {h} takes {10-30} and {g} takes twice as many. The rest are for {k}. How many more {goods} does {k} have than {h}?",
	"{h} has {2-5} [cats|dogs]. Each eats {2-4} cans of food a day. Cans are sold in packs of {6-24} for ${8-20} a pack. How much does {he} spend in {2-6} weeks?",
	"There were {80-300} people at a [party|game|wedding]. [Half|A third|A quarter] of them left after {2-4} hours, and {5-20} more left an hour later. How many people stayed?",
	"{h} wants to [read|watch|finish] {12-60} [chapters|episodes|lessons] in {3-10} days. {He} has done {3-11}. How many a day must {he} do?",
	"A [store|shop] has {40-200} {goods}. On {day} it sells {10-38} of them and gets {2-5} {box} with {6-20} {goods} in each. How many {goods} does it have at the end of the day?",
	"{h} pays ${400-990} rent each month. {g} pays ${50-200} less. How much do the two of them pay in [a year|half a year|three months]?",
}

// wordsOfSets are lists for the sets of prompts; like lists, they are drawn anew each time.
var wordsOfSets = map[string][]string{
	"goods": demo.Goods, "box": demo.Boxes, "color": demo.Colors, "day": demo.Days, "foods": {"muffins", "cupcakes", "sandwiches", "pies", "pizzas", "cookies", "rolls"},
	"wares":  {"lamp", "chair", "blanket", "game", "bike", "jacket", "camera", "table"},
	"job":    {"waiter", "teacher", "driver", "nurse", "babysitter", "clerk", "painter"},
	"crops":  {"tomatoes", "carrots", "roses", "onions", "pumpkins", "beans"},
	"elders": {"grandparents", "parents", "cousins", "neighbors"},
	"beasts": {"chickens", "dogs", "horses", "sheep", "rabbits", "goats"},
	"place":  demo.Places, "animal": demo.Animals, "thing": demo.Things, "food": demo.Foods,
}
